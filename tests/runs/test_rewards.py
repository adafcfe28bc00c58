"""The rewards of a run: dry runs on right answers, refusals, and prompts that ask for another form than is read."""

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.sections import RewardSettings, prompt_style
from rlvr_vocab.data.rows import build_messages
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.build import RewardContext, build_rewards
from rlvr_vocab.rewards.reward import RewardSpec
from rlvr_vocab.runs.rewards import answer_warnings, dry_run_rewards, dummy_context, gold_completion

TAGS = ("<think>", "</think>")
ROWS = Dataset.from_list([{"prompt": [{"role": "user", "content": "6*7?"}], "solution": "42", "level": 3}] * 3)


def rewards(*functions: Any) -> RewardSettings:
    named = [{"name": function} if isinstance(function, str) else function for function in functions]
    return RewardSettings(tuple(RewardSpec(**function) for function in named))


def accuracy(*answer_from: str) -> dict[str, Any]:
    return {"name": "accuracy", "params": {"answer_from": list(answer_from)}}


def text(settings: RewardSettings, solution: str = "42") -> str:
    [message] = gold_completion(solution, settings, TAGS)
    assert message["role"] == "assistant"
    return str(message["content"])


def test_a_gold_turn_thinks_and_states_the_answer_where_rewards_look() -> None:
    assert text(rewards("accuracy"), r"50\%") == "<think>\nWork it out.\n</think>\n\\boxed{50\\%}"
    form = "<reasoning>\nWork it out.\n</reasoning>\n<answer>\n{}\n</answer>\n"
    assert text(rewards("xml_tags", accuracy("answer_tag", "box"))) == form.format("42")
    assert text(rewards("xml_format", accuracy("box", "answer_tag"), "boxed")) == form.format("\\boxed{42}")


@pytest.mark.parametrize(
    "functions",
    [
        ["accuracy", "boxed", "think_format", "numeric", "exact_match"],
        [{"name": "accuracy", "params": {"answer_from": "hash"}}, "exact_match"],
        [accuracy("phrase", "box")],
        [accuracy("answer_tag")],
        ["xml_tags", "xml_format", "accuracy", "numeric"],
    ],
)
def test_a_gold_turn_has_full_marks_from_rewards_that_can_all_be_met(functions: list[Any]) -> None:
    settings = rewards(*functions)
    for reward in build_rewards(settings.functions, dummy_context(RewardContext(TAGS))):
        [score] = reward.explain(completions=[gold_completion("42", settings, TAGS)], solution=["42"], prompts=["6*7?"])
        assert score.value == reward.full_mark, (reward.name, score)


def test_the_trial_before_training_takes_the_form_that_the_rewards_ask_for(tmp_path: Path) -> None:
    strict = "def strict(completions, **columns):\n    return [float('<answer>' in turn[0]['content']) or 'no'" \
             " for turn in completions]\n"  # fmt: skip
    (tmp_path / "mine.py").write_text(strict)
    words = ["model=tiny", "dataset=arithmetic"]
    dry_run_rewards(read_settings("train", [*words, f"rewards=[xml_format,{tmp_path}/mine.py:strict]"]), ROWS)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="reward strict returned 'no'"):
        dry_run_rewards(read_settings("train", [*words, f"rewards=[{tmp_path}/mine.py:strict]"]), ROWS)  # type: ignore[arg-type]


def test_a_column_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def mine(completions, difficulty):\n    return difficulty\n")
    settings = read_settings("train", ["model=tiny", "dataset=arithmetic", f"rewards=[{tmp_path}/mine.py:mine]"])
    with pytest.raises(UserError, match="needs a column 'difficulty'; the problems have solution, level"):
        dry_run_rewards(settings, ROWS)  # type: ignore[arg-type]


def tried(*words: str) -> None:
    dry_run_rewards(read_settings("train", ["model=tiny", "dataset=arithmetic", *words]), ROWS)  # type: ignore[arg-type]


def test_rewards_without_a_score_for_any_problem_are_refused_with_their_reasons(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def mine(completions):\n    return [None] * len(completions)\n")
    with pytest.raises(UserError) as caught:
        tried(f"rewards=[multiple_choice,{tmp_path}/mine.py:mine]")
    assert str(caught.value) == (
        "rewards: nothing could be learned, the first 3 problems have no score: "
        "multiple_choice gave None (the gold answer is not one letter); mine gave None"
    )
    tried("rewards=[multiple_choice,accuracy]")
    with pytest.raises(UserError, match="nothing could be learned"):
        tried("rewards=[multiple_choice,{name:accuracy,weight:0},debug]")


def test_weights_that_are_all_0_are_refused() -> None:
    with pytest.raises(UserError, match="every weight is 0, so nothing could be learned"):
        tried("rewards=[{name:accuracy,weight:0},{name:boxed,weight:0.0}]")
    tried("rewards=[{name:accuracy,weight:0},boxed]")


@pytest.mark.parametrize("name", ["diversity", "reasoning_share", "overlong", "repetition", "cosine_length"])
def test_a_reward_that_applies_to_any_turn_passes_alone(name: str) -> None:
    tried(f"rewards=[{name}]")


def test_a_function_that_only_looks_is_not_tried_and_a_namesake_of_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tried("rewards=[accuracy,debug,debug]")
    assert capsys.readouterr().err == ""
    (tmp_path / "mine.py").write_text("def debug(completions):\n    return ['no'] * len(completions)\n")
    with pytest.raises(UserError, match="reward mine_debug returned 'no'"):
        tried(f"rewards=[accuracy,{tmp_path}/mine.py:debug]")


TAG = "rewards=[{name:accuracy,params:{answer_from:[answer_tag,phrase]}}]"


def warnings(*words: str, problem: str = "A box holds 3 balls. And two boxes?") -> list[str]:
    own = [] if "dataset=arithmetic" in words else ["dataset=local", "dataset.name=x.jsonl"]
    settings = read_settings("train", [*own, *words])
    return list(answer_warnings(settings, [build_messages(problem, prompt_style(settings.dataset))]))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["dataset.system_prompt=Give the number."], "accuracy looks for \\boxed{…}"),
        (["dataset.system_prompt=null"], "accuracy looks for \\boxed{…}"),
        (
            ["dataset.system_prompt=Put it into \\\\boxed.", TAG],
            "accuracy looks for <answer>…</answer> or The answer is",
        ),
        (["rewards=[xml_format]"], "xml_format looks for <answer>…</answer>"),
        (["rewards=cosine", "dataset.system_prompt=Add."], "cosine_length looks for \\boxed{…}"),
        (["dataset.examples=[{problem: '1+1', answer: '2'}]"], "accuracy looks for \\boxed{…}"),
    ],
)
def test_a_form_that_is_read_and_not_asked_for_is_named(words: list[str], named: str) -> None:
    [line] = warnings(*words)
    assert f"reward {named}" in line


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["dataset=arithmetic"],
        ["dataset.system_prompt=Think, then box the sum."],
        ["dataset.system_prompt=Say: The answer is 3.", TAG],
        ["experiment=gsm8k_reasoning"],
        ["dataset.system_prompt=null", "rewards=[exact_match,numeric,multiple_choice]"],
        ["dataset.system_prompt=null", "rewards=[{name:accuracy,weight:0},length]"],
        ["dataset.examples=[{problem: '1+1', answer: 'So \\\\boxed{2}'}]"],
        ["model=tiny", "warmup.max_steps=9", "dataset.columns.reasoning=working", "dataset.system_prompt=null"],
        ["model=tiny", "rewards=[{name:length,params:{longest:9}}]"],
    ],
)
def test_other_runs_have_no_warning(words: list[str]) -> None:
    assert warnings(*words) == []


def test_the_problems_themselves_may_ask_for_the_box() -> None:
    assert warnings("dataset.system_prompt=null", problem="1+1=? Answer in \\boxed{}.") == []


def test_an_embedded_model_without_a_warm_up_is_named() -> None:
    [line] = warnings("model=tiny", "dataset=arithmetic")
    assert "random weights" in line and "warmup.max_steps" in line


@pytest.mark.parametrize(
    ("written", "recorded", "seconds"),
    [("", "auto", 300), (",deadline:5", 5, 5), (",deadline:null", None, None)],
)
def test_a_deadline_reaches_the_function_and_is_recorded_as_it_was_written(
    tmp_path: Path, written: str, recorded: Any, seconds: Any
) -> None:
    (tmp_path / "mine.py").write_text("def mine(completions, **columns):\n    return [1.0] * len(completions)\n")
    functions = f"rewards.functions=[{{name:'{tmp_path}/mine.py:mine'{written}}}]"
    settings: Any = read_settings("train", ["model=tiny", "dataset=arithmetic", functions])
    [reward] = build_rewards(settings.rewards.functions, RewardContext())
    assert reward.deadline == seconds
    assert settings.resolved["rewards"]["functions"][0]["deadline"] == recorded
