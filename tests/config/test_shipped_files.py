"""Every shipped YAML file composes, and every key in it is read and explained."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from rlvr_vocab.config.command_line import parse_command_line
from rlvr_vocab.config.command_settings import COMMANDS
from rlvr_vocab.config.help import printed
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import CONF, config_yaml
from rlvr_vocab.config.sections import OURS
from rlvr_vocab.config.values import keys_of
from tests.settings import load_settings

pytestmark = pytest.mark.slow

NAMES = [f"{path.parent.name}={path.stem}" for path in sorted(CONF.glob("*/*.yaml")) if not path.stem.startswith("_")]
CHOICES = [name for name in NAMES if find_spec("reasoning_gym") or not re.search(r"reasoning_gym|=gym_", name)]
# Choices with which no section is null.
ENVIRONMENT = "environment={name: my.py:Env, params: {n: 1}}"
EVERY_SECTION = {
    "train": ["model=tiny", "dataset=arithmetic", ENVIRONMENT],
    "check": ["model=tiny", "dataset=arithmetic", ENVIRONMENT],
    "score": ["model=tiny", "dataset=arithmetic", ENVIRONMENT],
    "evaluate": ["dataset=arithmetic", ENVIRONMENT],
    "generate": [ENVIRONMENT],
    "merge": [],
    "expand": ["model=tiny"],
}


def with_what_it_needs(choice):
    needed = {"dataset=local": "dataset.name=problems.csv", "dataset=reasoning_gym": "dataset.tasks=[lcm,{name:gcd}]"}
    return [choice, needed[choice]] if choice in needed else [choice]


@pytest.mark.parametrize("choice", CHOICES)
def test_a_shipped_choice_composes_and_its_recorded_configuration_gives_the_same_settings(choice, tmp_path):
    settings = read_settings("train", with_what_it_needs(choice))
    recorded = tmp_path / "config.yaml"
    recorded.write_text(config_yaml(settings.resolved))
    assert read_settings("train", [f"config={recorded}"]) == settings


def of_group(group):
    return [choice for choice in CHOICES if choice.startswith(f"{group}=")]


@pytest.mark.parametrize("model", of_group("model"))
def test_every_model_goes_with_every_problem_set_training_and_reward(model, monkeypatch, tmp_path):
    monkeypatch.setattr("rlvr_vocab.errors.installed", lambda package: True)
    (tmp_path / "problems.csv").write_text("problem,answer\n1+1=,2\n")
    others = [of_group(group) for group in ("dataset", "training", "rewards")]
    for number in range(max(map(len, others))):  # each choice of a group once
        words = [word for choices in others for word in with_what_it_needs(choices[number % len(choices)])]
        load_settings("train", [model, *words])


@pytest.mark.parametrize("recipe", of_group("experiment"))
def test_every_recipe_passes_every_check(recipe):
    load_settings("train", [recipe])


@pytest.mark.parametrize("command", ["quickstart", *EVERY_SECTION])
def test_help_explains_every_key_that_it_lists(command):
    lines = (printed(parse_command_line(command, ["--help"])) or "").splitlines()
    keys = [line for line in lines if line.startswith("  ") and "=" in line and not line.startswith("  rlvr-vocab")]
    assert len(keys) >= 4
    assert [line for line in keys if "  # " not in line and not line.startswith("  dataset.system_prompt")] == []


@pytest.mark.parametrize("command", EVERY_SECTION)
def test_every_key_of_the_settings_stands_in_a_shipped_file(command):
    shown = printed(parse_command_line(command, [*EVERY_SECTION[command], "--help"])) or ""
    for key in keys_of(COMMANDS[command].settings):
        of_trl = key.startswith("training.") and key.removeprefix("training.") not in OURS
        if of_trl or key.startswith("model.model_kwargs."):
            continue
        assert "[]" in key or f"  {key}=" in shown or f"  {key}." in shown, key


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["model.reasoning_vocab_size=1000"], "grpo_reasoning_1000"),
        (["experiment=quickstart", "seed=7"], "quickstart_reasoning_full_seed7"),
        (["experiment=quickstart", "model.reasoning_vocab_size=0"], "quickstart_baseline_seed42"),
        (["model.source_ids=[5,6]"], "grpo_reasoning_2_805009"),
        (["model.source_ids=[5,7]"], "grpo_reasoning_2_73bd24"),
        (["model.source_ids=re:^ ?[0-9]+$"], "grpo_reasoning_re_afc47d"),
        (["exp_name=mine", "model.reasoning_vocab_size=1000"], "mine"),
    ],
)
def test_a_run_is_named_after_its_arm(words, name):
    settings = read_settings("train", words)
    assert settings.exp_name == name and settings.output_dir == Path("out") / name
