"""What may be typed, and what one line answers where it may not."""

from pathlib import Path

import pytest

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.errors import UserError


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("training.learning_rat=1", ["training.learning_rat", "training.learning_rate?"]),
        ("learning_rate=1", ["training.learning_rate or warmup.learning_rate?"]),
        ("qqqqq=1", ["qqqqq", "--help"]),
        ("model=qwen4", ["model=qwen4", "qwen3_0.6b?", "smollm2_135m", "model.name"]),
        ("experiment=quickstrt", ["quickstart?", "gsm8k_reasoning"]),
        ("training.report_to=wandb", ["set logging=wandb, tensorboard, trackio, mlflow or none"]),
        ("training.include_num_input_tokens_seen=all", ["include_num_input_tokens_seen is not used here"]),
        ("hydra.run.dir=x", ["output_dir"]),
        ("seed", ["'seed'", "key=value"]),
        ("seed=1,2", ["seed=1,2", "--multirun"]),
        ("seed=[", ["'seed=['"]),
        ("--seed=3", ["write seed=3"]),
        ("--config-dir", ["--config-dir", "expected one argument"]),
        ("training.max_steps=None", ["training.max_steps", "a valid integer", "YAML's None is null"]),
        ("training.loss_type=drgrpo", ["training.loss_type=drgrpo", "dr_grpo?", "sapo"]),
        ("seed=true", ["seed=true", "a valid integer"]),
        ("model.reasoning_vocab_size=half", ["size=half", "a valid integer or should be 'full'"]),
        ("model.source_ids=[1,2.5]", ["model.source_ids[1]=2.5"]),
        ("dataset.examples=[{problem: a}]", ["dataset.examples[0].answer"]),
        ("rewards.functions=[{nme: accuracy}]", ["rewards.functions[0].nme", "rewards.functions[].name?"]),
        ("dataset=local", ["dataset.name is missing"]),
        ("exp_name=${nowhere}", ["exp_name", "nowhere"]),
        ("rewards=[accuracy,{name: boxed, deadline: 0}]", ["rewards.functions[1].deadline=0", "greater than 0"]),
        ("model.lora.target_modules=all-liner", ["should be 'all-linear' or", "did you mean all-linear?"]),
        ("output_dir=", ["output_dir=: must not be empty"]),
        ("training.epsilon_hig=1", ["unknown key training.epsilon_hig", "training.epsilon_high?"]),
        ("training.adam_epsilon=small", ["training.adam_epsilon=small", "valid number"]),
        ("training.sync_ref_model=1", ["training.sync_ref_model", "valid boolean"]),
    ],
)
def test_what_cannot_be_read_gets_one_line_with_its_key_or_the_nearest_right_thing(word, parts):
    with pytest.raises(UserError) as caught:
        read_settings("train", [word])
    message = str(caught.value)
    assert all(part in message for part in parts), message
    assert "\n" not in message


@pytest.mark.parametrize("prefix", ["", "+", "++"])
def test_a_grpo_field_that_no_file_names_is_accepted_with_any_prefix(prefix):
    grpo = read_settings("train", [f"{prefix}training.epsilon_high=0.28", "~training.epsilon"]).training.grpo
    assert grpo["epsilon_high"] == 0.28 and "epsilon" not in grpo


@pytest.mark.parametrize(
    "text",
    [
        *("What is 3*(4+5)=?", "It's 'quoted', {really}: [yes]", r"\frac{1}{2} and \boxed{}", "a \\' b"),
        *("costs ${x} dollars", "zwei\nZeilen, ünïcode"),
    ],
)
def test_text_and_paths_arrive_as_they_were_typed(text):
    settings = read_settings("train", [f"dataset.system_prompt={text}", "exp_name='a, b'", "output_dir=/a,b/c=d e"])
    assert (settings.dataset.system_prompt, settings.exp_name) == (text, "a, b")
    assert settings.output_dir == Path("/a,b/c=d e")


def test_null_is_a_value_where_trl_allows_none():
    words = ["training.vllm_importance_sampling_clip_max=null"]
    assert read_settings("train", words).training.grpo["vllm_importance_sampling_clip_max"] is None
    with pytest.raises(UserError, match=r"training.learning_rate=null: should be a valid number"):
        read_settings("train", ["training.learning_rate=null"])


def test_an_unquoted_no_in_yaml_is_the_strategy_no(tmp_path):
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "mine.yaml").write_text("defaults: [grpo_default, _self_]\nsave_strategy: no\n")
    settings = read_settings("train", ["--config-dir", str(tmp_path), "training=mine"])
    assert settings.training.grpo["save_strategy"] == "no"


@pytest.mark.parametrize("tags", ["[ <reasoning> , </reasoning> ]", "['<reasoning>','</reasoning>']"])
def test_think_tags_need_no_quotes_and_the_default_system_prompt_names_them(tags):
    settings = read_settings("train", [f"model.think_tags={tags}"])
    assert settings.model.think_tags == ("<reasoning>", "</reasoning>")
    assert "Think between <reasoning> and </reasoning>, then" in settings.dataset.system_prompt
    assert "Think between <think> and </think>, then" in read_settings("check", []).dataset.system_prompt


def test_a_whole_float_is_an_integer_and_a_tilde_the_home_folder():
    settings = read_settings("train", ["seed=1e3", "output_dir=~/x"])
    assert (settings.seed, type(settings.seed), settings.output_dir) == (1000, int, Path.home() / "x")
