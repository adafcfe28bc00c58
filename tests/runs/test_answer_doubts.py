"""A run whose prompts ask for another form than its rewards read is warned, and no other."""

import pytest

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.sections import prompt_style
from rlvr_vocab.data.rows import build_messages
from rlvr_vocab.runs.rewards import answer_warnings

TAG = "rewards=[{name:accuracy,params:{answer_from:[answer_tag,phrase]}}]"


def doubts(*words: str, problem: str = "A box holds 3 balls. And two boxes?") -> list[str]:
    own = [] if "dataset=arithmetic" in words else ["dataset=local", "dataset.name=x.jsonl"]
    settings = read_settings("train", [*own, *words])
    return list(answer_warnings(settings, [build_messages(problem, prompt_style(settings.dataset))]))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["dataset.system_prompt=Give the number."], "accuracy looks for \\boxed{…}"),
        (["dataset.system_prompt=null"], "accuracy looks for \\boxed{…}"),
        (["dataset.system_prompt=Put it into <answer>."], "accuracy looks for \\boxed{…}"),
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
    [line] = doubts(*words)
    assert f"reward {named}" in line


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["dataset=arithmetic"],
        ["dataset.system_prompt=Think, then box the sum."],
        ["dataset.system_prompt=Write <answer>.", TAG],
        ["dataset.system_prompt=Say: The answer is 3.", TAG],
        ["experiment=gsm8k_xml"],
        ["experiment=gsm8k_reasoning"],
        ["dataset.system_prompt=null", "rewards=[exact_match,numeric,multiple_choice]"],
        ["dataset.system_prompt=null", "rewards=[{name:accuracy,weight:0},length]"],
        ["dataset.examples=[{problem: '1+1', answer: 'So \\\\boxed{2}'}]"],
        ["model=tiny", "warmup.max_steps=9", "dataset.columns.reasoning=working", "dataset.system_prompt=null"],
        ["model=tiny", "rewards=[{name:length,params:{longest:9}}]"],
    ],
)
def test_nothing_is_said_of_others(words: list[str]) -> None:
    assert doubts(*words) == []


def test_the_problems_themselves_may_ask_for_the_box() -> None:
    assert doubts("dataset.system_prompt=null", problem="1+1=? Answer in \\boxed{}.") == []


def test_an_embedded_model_without_a_warm_up_is_named() -> None:
    [line] = doubts("model=tiny", "dataset=arithmetic")
    assert "random weights" in line and "warmup.max_steps" in line
