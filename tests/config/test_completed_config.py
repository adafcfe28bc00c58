"""Configurations that are older, or written by hand, read as the command line would read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.runs.record import run_facts

LEAST: dict[str, Any] = {"model": {}, "dataset": {}, "training": {}}


def test_what_is_left_out_has_its_default(tmp_path: Path) -> None:
    facts = run_facts(LEAST, tmp_path)
    assert (facts.exp_name, facts.seed, facts.think_tags) == (tmp_path.name, 42, ("<think>", "</think>"))
    assert (facts.reasoning_mode, facts.reasoning_vocab_size, facts.reasoning_copies) == ("expand", 0, 0.0)
    assert facts.rewards == () and facts.learning_rate == 1e-6 and not facts.pure_bf16


@pytest.mark.parametrize(
    ("rewards", "names"),
    [
        ("accuracy", ["accuracy"]),
        ("format", ["think_format", "boxed"]),
        (["accuracy", "boxed"], ["accuracy", "boxed"]),
        ({"functions": ["accuracy", {"name": "boxed", "weight": 0.1, "adaptive": True}]}, ["accuracy", "boxed"]),
        (None, []),
    ],
)
def test_rewards_are_a_choice_a_list_or_spelled_out(rewards: Any, names: list[str], tmp_path: Path) -> None:
    facts = run_facts({**LEAST, "rewards": rewards}, tmp_path)
    assert [each.name for each in facts.rewards] == names


def test_a_number_that_yaml_takes_for_text_is_one(tmp_path: Path) -> None:
    assert run_facts({**LEAST, "training": {"learning_rate": "2e-4"}}, tmp_path).learning_rate == 2e-4


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"training": {"learning_rate": "fast"}}, "training.learning_rate=fast: expected a number"),
        ({"training": {"num_generations": []}}, "training.num_generations"),
        ({"model": {"think_tags": "<think>"}}, "model.think_tags"),
        ({"seed": "x"}, "seed"),
        ({"rewards": 3}, "rewards"),
    ],
)
def test_a_value_that_there_cannot_be_is_named(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        run_facts({**LEAST, **changed}, tmp_path)
