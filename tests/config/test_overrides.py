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
        ("model.reasoning_vocab=5", ["model.reasoning_vocab_size?"]),
        ("qqqqq=1", ["qqqqq", "--help"]),
        ("model=qwen4", ["model=qwen4", "qwen3_0.6b?", "smollm2_135m", "model.name"]),
        ("experiment=quickstrt", ["quickstart?", "gsm8k_reasoning"]),
        ("training.output_dir=x", ["training.output_dir", "set output_dir"]),
        ("training.reward_weights=[2.5]", ["rewards.functions"]),
        ("training.report_to=wandb", ["set logging=wandb, logging=offline or logging=disabled"]),
        ("training.do_sample=true", ["training always samples"]),
        ("training.evaluation_strategy=steps", ["training.eval_strategy"]),
        ("training.run_name=x", ["training.run_name is not used here: set exp_name"]),
        ("training.max_tool_calling_iterations=3", ["training.max_tool_calling_iterations", "no tools"]),
        ("hydra.run.dir=x", ["output_dir"]),
        ("seed", ["'seed'", "key=value"]),
        ("seed=1,2", ["seed=1,2", "--multirun"]),
        ("seed=[", ["'seed=['"]),
        ("--seed=3", ["write seed=3"]),
        ("--config-dri", ["--config-dir?"]),
        ("--config-dir", ["--config-dir", "expected one argument"]),
    ],
)
def test_what_cannot_be_read_gets_one_line_with_the_nearest_right_thing(word: str, parts: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        read_settings("train", [word])
    message = str(caught.value)
    assert all(part in message for part in parts), message
    assert "\n" not in message


@pytest.mark.parametrize("prefix", ["", "+", "++"])
def test_a_grpo_field_that_no_file_names_is_accepted_with_any_prefix(prefix: str) -> None:
    settings = read_settings("train", [f"{prefix}training.epsilon_high=0.28"])
    assert settings.training.grpo["epsilon_high"] == 0.28


def test_a_key_that_is_taken_away_falls_back_to_trl() -> None:
    assert "epsilon" not in read_settings("train", ["~training.epsilon"]).training.grpo


@pytest.mark.parametrize(
    "text",
    [
        "What is 3*(4+5)=?",
        "It's 'quoted', {really}: [yes]",
        "ends with a backslash \\",
        r"\frac{1}{2} and \boxed{}",
        "a \\' b",
        "costs ${x} dollars",
        "'twas the night",
        "zwei\nZeilen, ünïcode",
        "5",
        "true",
    ],
)
def test_text_arrives_as_it_was_typed(text: str) -> None:
    assert read_settings("generate", ["checkpoint=x", f"prompt={text}"]).prompt == text
    settings = read_settings("train", [f"dataset.system_prompt={text}"])
    assert settings.dataset.system_prompt == text


def test_text_in_quotes_arrives_without_them() -> None:
    assert read_settings("train", ["exp_name='a, b'"]).exp_name == "a, b"


def test_a_path_may_hold_commas_and_equal_signs() -> None:
    assert read_settings("train", ["output_dir=/a,b/c=d e"]).output_dir == Path("/a,b/c=d e")


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("training.learning_rate=abc", ["training.learning_rate=abc", "a valid number"]),
        ("training.max_steps=None", ["training.max_steps", "a valid integer", "YAML's None is null"]),
        ("training.max_steps=1.5", ["training.max_steps=1.5", "a valid integer"]),
        ("training.bf16=maybe", ["training.bf16=maybe", "a valid boolean"]),
        ("training.loss_type=drgrpo", ["training.loss_type=drgrpo", "dr_grpo?", "sapo"]),
        ("seed=1.5", ["seed=1.5", "a valid integer"]),
        ("seed=true", ["seed=true", "a valid integer"]),
        (
            "model.reasoning_vocab_size=half",
            ["model.reasoning_vocab_size=half", "a valid integer or should be 'full'"],
        ),
        ("model.reasoning_mode=expnd", ["model.reasoning_mode=expnd", "expand?"]),
        ("model.source_ids=[1,x]", ["model.source_ids[1]=x"]),
        ("model.generation_kwargs.max_new_tokens=many", ["training.max_completion_length=many", "a valid integer"]),
        ("dataset.columns.problem=null", ["dataset.columns.problem=null", "a valid string"]),
        ("dataset.examples=[{problem: a}]", ["dataset.examples[0].answer"]),
        ("rewards.functions=[{nme: accuracy}]", ["rewards.functions[0].nme", "rewards.functions[].name?"]),
        ("dataset=local", ["dataset.name is missing"]),
        ("exp_name=${nowhere}", ["exp_name", "nowhere"]),
    ],
)
def test_a_value_of_the_wrong_type_is_named_with_its_key(word: str, parts: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        read_settings("train", [word])
    assert all(part in str(caught.value) for part in parts), str(caught.value)


def test_null_is_a_value_where_trl_allows_none() -> None:
    words = ["training.vllm_importance_sampling_clip_max=null"]
    assert read_settings("train", words).training.grpo["vllm_importance_sampling_clip_max"] is None
    with pytest.raises(UserError, match=r"training.learning_rate=null: should be a valid number"):
        read_settings("train", ["training.learning_rate=null"])


def test_an_unquoted_no_in_yaml_is_the_strategy_no(tmp_path: Path) -> None:
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "mine.yaml").write_text("defaults: [grpo_default, _self_]\nsave_strategy: no\n")
    settings = read_settings("train", ["--config-dir", str(tmp_path), "training=mine"])
    assert settings.training.grpo["save_strategy"] == "no"


def test_the_later_of_two_choices_counts() -> None:
    assert read_settings("train", ["model=tiny", "model=smollm2_135m"]).model.name.endswith("135M-Instruct")


@pytest.mark.parametrize(
    "tags", ["[<reasoning>,</reasoning>]", "[ <reasoning> , </reasoning> ]", "['<reasoning>','</reasoning>']"]
)
def test_think_tags_need_no_quotes_and_the_default_system_prompt_names_them(tags: str) -> None:
    settings = read_settings("train", [f"model.think_tags={tags}"])
    assert settings.model.think_tags == ("<reasoning>", "</reasoning>")
    assert "Think between <reasoning> and </reasoning>, then" in settings.dataset.system_prompt
    assert "Think between <think> and </think>, then" in read_settings("check", []).dataset.system_prompt
