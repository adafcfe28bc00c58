"""A user's own files: config=FILE over the defaults and below the words that are typed, and files of --config-dir."""

import re
from pathlib import Path

import pytest

from rlvr_vocab.config.command_line import parse_command_line
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import config_yaml
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.build import find_function
from rlvr_vocab.rewards.reward import only_allowed_code
from tests.settings import refusal

TEN_KEYS = """# @package _global_
exp_name: mine
seed: 7
model: tiny
dataset:
  name: problems.csv
  columns: {problem: question}
training:
  learning_rate: 1e-5
  max_steps: 3
  epsilon: 0.3
training.beta: 0.1
rewards: [mine.py:score, {name: boxed, weight: 0.5}]
logging: disabled
"""
TYPED = [
    *("exp_name=mine", "seed=7", "model=tiny", "dataset.name=problems.csv", "dataset.columns.problem=question"),
    *("training.learning_rate=1e-5", "training.max_steps=3", "training.epsilon=0.3", "training.beta=0.1"),
    *("rewards=[mine.py:score,{name:boxed,weight:0.5}]", "logging=disabled"),
]


@pytest.fixture(autouse=True)
def file():
    Path("my.yaml").write_text(TEN_KEYS)
    Path("mine.py").write_text("def score(completions, **columns):\n    return [1.0] * len(completions)\n")


@pytest.mark.parametrize("form", [["config=my.yaml"], ["--config", "my.yaml"], ["--config=my.yaml"]])
def test_a_file_says_what_the_same_keys_say_when_they_are_typed(form):
    more = ["training.max_steps=9", "model=smollm2_135m"]
    for command, typed in (("train", []), ("train", more), ("plan", [])):
        assert read_settings(command, [*typed, *form]) == read_settings(command, [*TYPED, *typed])


def test_other_commands_take_their_keys_of_the_same_file():
    check = read_settings("check", ["config=my.yaml"])
    assert (check.dataset.name, check.dataset.columns.problem, check.model.name) == ("problems.csv", "question", "tiny")
    score = read_settings("score", ["config=my.yaml", "samples=3"])
    assert (score.samples, score.model.name, score.rewards) == (3, "tiny", read_settings("train", TYPED).rewards)
    completions = read_settings("score", ["config=my.yaml", "completions=some.jsonl"])
    assert completions.dataset is None and completions.rewards == score.rewards
    evaluate = read_settings("evaluate", ["config=my.yaml", "checkpoint=a/model", "dataset.max_eval_samples=5"])
    assert (evaluate.dataset.name, evaluate.dataset.max_eval_samples, evaluate.seed) == ("problems.csv", 5, 7)


def test_a_recipe_and_files_of_groups_stand_below_the_file_unless_they_are_typed():
    Path("my.yaml").write_text(
        "defaults:\n  - override /model: smollm2_135m\n  - _self_\nseed: 3\nwarmup: {max_steps: 9}\n"
    )
    settings = read_settings("train", ["experiment=quickstart", "config=my.yaml"])
    assert (settings.model.tiny, settings.seed, settings.warmup.max_steps) == (None, 3, 9)
    assert settings.dataset.name == "arithmetic" and settings.warmup.until_accuracy == 0.3
    assert read_settings("quickstart", ["config=my.yaml"]) == settings
    Path("my.yaml").write_text("model: {name: a/b, init_noise: 0.5}\ntraining: {num_generations: 6}\nrewards: [boxed]")
    typed = read_settings("train", ["config=my.yaml", "model=tiny", "training=small_gpu", "rewards=xml"])
    assert (typed.model.name, typed.model.init_noise, len(typed.rewards.functions)) == ("tiny", 0.5, 3)
    assert (typed.training.grpo["num_generations"], typed.training.grpo["per_device_train_batch_size"]) == (6, 1)


@pytest.mark.parametrize(
    ("text", "command", "said"),
    [
        pytest.param("training: {betta: 1}", "train", "my.yaml: unknown key training.betta;", marks=pytest.mark.slow),
        ("warmup: {max_step: 1}", "train", "my.yaml: unknown key warmup.max_step; did you mean warmup.max_steps?"),
        ("dataset: {nme: x}", "check", "my.yaml: unknown key dataset.nme; did you mean dataset.name?"),
        ("model_name_or_path: x", "train", "my.yaml: unknown key model_name_or_path; did you mean model.name?"),
        ("max_samples: 3", "train", "my.yaml: unknown key max_samples; did you mean"),
        ("training: {learning_rate: fast}", "train", "my.yaml: training.learning_rate=fast: should be a valid number"),
        ("model: qwen4", "train", "model=qwen4: no file"),
        ("training:\nsedd: 1", "train", "my.yaml: unknown key sedd; did you mean seed?"),
        ("- a", "train", "my.yaml: expected keys and values"),
    ],
)  # fmt: skip
def test_an_error_in_a_file_names_the_file_and_the_nearest_key(text, command, said):
    Path("my.yaml").write_text(text)
    with pytest.raises(UserError) as caught:
        read_settings(command, ["config=my.yaml"])
    assert str(caught.value).startswith(said) and "\n" not in str(caught.value)


@pytest.mark.slow
def test_all_unknown_keys_are_named_at_once():
    Path("my.yaml").write_text("training: {betta: 1, beta: 0.1}\nsedd: 1")
    with pytest.raises(UserError) as caught:
        read_settings("train", ["config=my.yaml", "training.optimm=x", "modl.name=y"])
    typed, _, in_file = str(caught.value).partition(" my.yaml: ")
    assert [re.findall(r"([\w.]+) \(", each) for each in (typed, in_file)] == [
        ["modl.name", "training.optimm"], ["training.betta", "sedd"]
    ]  # fmt: skip


def test_the_code_of_a_file_of_the_users_is_imported_and_that_of_a_recorded_run_is_not():
    for command in ("train", "score"):
        with only_allowed_code():
            name = read_settings(command, ["config=my.yaml"]).rewards.functions[0].name
            find_function(name)
    Path("run.yaml").write_text(config_yaml(read_settings("train", TYPED).resolved))
    for command, *typed in (["train"], ["score"], ["train", "stages=[{name: a, training: {max_steps: 1}}]"]):
        with only_allowed_code(), pytest.raises(UserError, match="trust_code=true"):
            find_function(read_settings(command, ["config=run.yaml", *typed]).rewards.functions[0].name)


def words(command, *typed):
    return parse_command_line(command, typed).overrides


def test_a_path_without_a_key_is_taken_where_only_one_thing_can_be_meant():
    Path("out/lr=1e-5").mkdir(parents=True)
    assert words("doctor", "out/x") == words("doctor", "run=out/x")
    assert words("samples", "order=lowest", "out/lr=1e-5") == ("order=lowest", "run=out/lr=1e-5")
    assert words("compare", "a", "b,c") == ("runs=['a','b,c']",)
    assert words("evaluate", "out/x/final_model", "samples=4") == ("samples=4", "checkpoint=out/x/final_model")
    assert words("generate", "out/x", "What is 2+2=?") == ("checkpoint=out/x", "prompt=What is 2+2=?")
    assert words("check", "problems.csv") == ("dataset=problems.csv",)


@pytest.mark.parametrize(
    ("command", "typed", "said"),
    [
        ("train", ["--learning_rate", "1e-5"], "write training.learning_rate=1e-5"),
        ("train", ["--learning-rate=1e-5"], "write training.learning_rate=1e-5"),
        ("train", ["--model_name_or_path", "a/b"], "write model.name=a/b"),
        ("train", ["--use_vllm", "--seed", "3"], "write training.use_vllm=true"),
        ("train", ["--lora_r=8"], "write model.lora.r=8"),
        ("train", ["--vllm_server_host", "h"], "training.vllm_server_host=h"),
        ("train", ["--push_to_hub"], "push_to_hub"),
        ("train", ["my.yaml"], "write config=my.yaml"),
        ("train", ["problems.csv"], "write dataset=problems.csv"),
        ("train", ["lr=1e-5"], "training.learning_rate"),
        ("doctor", ["--run", "out/x"], "write run=out/x"),
        ("doctor", ["out/x", "out/y"], "cannot read 'out/y'"),
    ],
)
def test_forms_of_other_tools_are_answered_with_the_right_one(command, typed, said):
    with pytest.raises(UserError) as caught:
        read_settings(command, typed)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_file_added_under_config_dir_is_a_choice_and_keeps_the_other_defaults(tmp_path):
    write(tmp_path / "my conf" / "model" / "mine.yaml", "name: org/mine\nreasoning_vocab_size: 7\n")
    settings = read_settings("train", ["--config-dir", str(tmp_path / "my conf"), "model=mine"])
    assert (settings.model.name, settings.model.reasoning_vocab_size) == ("org/mine", 7)
    assert settings.model.think_tags == ("<think>", "</think>") and settings.exp_name == "grpo_reasoning_7"


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
        ("experiment/mine.yaml", "defaults: [override /model: qwen3_06b]\n", ["model/qwen3_06b", "qwen3_0.6b?"]),
    ],
)
def test_what_is_wrong_in_a_file_is_named(file, text, parts, tmp_path):
    write(tmp_path / file, f"# @package _global_\n{text}" if file.startswith("experiment") else text)
    message = refusal("train", ["-cd", str(tmp_path), f"{file.partition('/')[0]}=mine"])
    assert all(part in message for part in parts), message
