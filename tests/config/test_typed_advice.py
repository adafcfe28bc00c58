"""What an error says to type is typed: it has to work. And the plainest commands need no advice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlvr_vocab.cli import load_settings, main
from rlvr_vocab.errors import UserError
from rlvr_vocab.runs.prompts import limits_that_fit

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def quiet_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLVR_VOCAB_CACHE", str(tmp_path / "cache"))


def test_the_embedded_model_trains_on_arithmetic_with_all_defaults() -> None:
    few = ["dataset.generator.num_problems=40", "dataset.max_eval_samples=1", "training.max_steps=1", "report=false"]
    assert main(["train", "model=tiny", "dataset=arithmetic", "logging=disabled", *few]) == 0


def alternatives(advice: str) -> list[dict[str, int]]:
    """Each choice that an error offers, by key."""
    numbers = r"(training\.\w+)=(\d+)"
    return [
        {key: int(value) for key, value in re.findall(numbers, part)}
        for part in re.split(",? or ", advice)
        if re.search(numbers, part)
    ]


@pytest.mark.parametrize(("longest", "context", "completion"), [(900, 1024, 512), (511, 512, 512), (512, 512, 1)])
def test_limits_that_are_advised_fit(longest: int, context: int, completion: int) -> None:
    choices = alternatives(limits_that_fit(longest, context, completion))
    assert choices
    for choice in choices:
        prompt = choice.get("training.max_prompt_length", longest)
        assert prompt + choice.get("training.max_completion_length", completion) == context


@pytest.mark.parametrize(
    "words",
    [
        ["training.num_generations=48"],
        ["training.num_generations=7", "training.per_device_train_batch_size=3"],
        ["training.num_generations=6", "training.per_device_train_batch_size=4", "training.steps_per_generation=2"],
    ],
)
def test_batches_that_are_advised_hold_whole_groups(words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        load_settings("quickstart", words)
    advised = re.findall(r"(training\.\w+)=(\d+(?: or \d+)*)", str(caught.value).partition("set ")[2])
    offered = [f"{key}={value}" for key, values in advised for value in values.split(" or ")]
    assert offered
    for word in offered:
        load_settings("quickstart", [*words, word])
