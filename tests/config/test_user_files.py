"""A user's own YAML files: added, used, and blamed by name."""

import pytest

from rlvr_vocab.config.load import read_settings
from tests.settings import refusal


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_file_added_under_config_dir_is_a_choice_and_keeps_the_other_defaults(tmp_path):
    write(tmp_path / "my conf" / "model" / "mine.yaml", "name: org/mine\nreasoning_vocab_size: 7\n")
    settings = read_settings("train", ["--config-dir", str(tmp_path / "my conf"), "model=mine"])
    assert (settings.model.name, settings.model.reasoning_vocab_size) == ("org/mine", 7)
    assert settings.model.think_tags == ("<think>", "</think>")
    assert settings.exp_name == "grpo_reasoning_7"


def test_a_users_file_wins_over_a_shipped_one_but_a_config_yaml_of_something_else_is_none(tmp_path):
    write(tmp_path / "model" / "qwen3_0.6b.yaml", "name: org/mine\n")
    write(tmp_path / "config.yaml", "something: else\n")
    assert read_settings("train", ["-cd", str(tmp_path)]).model.name == "org/mine"


def test_a_users_recipe_may_choose_the_users_own_files(tmp_path):
    write(tmp_path / "dataset" / "mine.yaml", "name: mine.csv\n")
    recipe = "# @package _global_\ndefaults:\n  - override /dataset: mine\nseed: 9\ntraining:\n  beta: 0.04\n"
    write(tmp_path / "experiment" / "recipe.yaml", recipe)
    settings = read_settings("train", ["-cd", str(tmp_path), "experiment=recipe", "training.beta=0.1"])
    assert (settings.dataset.name, settings.seed, settings.training.grpo["beta"]) == ("mine.csv", 9, 0.1)


@pytest.mark.parametrize(
    ("file", "text", "parts"),
    [
        ("training/mine.yaml", "learning_rat: 1.0e-5\n", ["training.learning_rat;", "training.learning_rate?"]),
        ("dataset/mine.yaml", 'name: x\nsystem_prompt: "\\ud800"\n', ["UTF-8 cannot write"]),
        ("model/mine.yaml", "name: x\nother: [1,\n", ["model/mine.yaml", "line"]),
        (
            "experiment/mine.yaml",
            "# @package _global_\ndefaults:\n  - override /model: qwen3_06b\n",
            ["model/qwen3_06b", "qwen3_0.6b?"],
        ),
    ],
)
def test_what_is_wrong_in_a_file_is_named(file, text, parts, tmp_path):
    write(tmp_path / file, text)
    message = refusal("train", ["-cd", str(tmp_path), f"{file.partition('/')[0]}=mine"])
    assert all(part in message for part in parts), message
