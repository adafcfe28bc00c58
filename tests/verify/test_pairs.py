"""The verifier against pairs of a gold answer and a boxed one whose verdict no careful mathematician would dispute.

A pair is in `pairs.jsonl` only if the verdict is clear without the problem. The wrong answers are near misses.
"""

import json
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pytest

from rlvr_vocab.rewards import accuracy

GOLD_FORMS = {"bare": "{}", "dollars": "${}$", "boxed": r"\boxed{{{}}}"}


@dataclass(frozen=True)
class Pair:
    """A gold answer, what stands in the box of the completion, and whether that is right."""

    category: str
    gold: str
    answer: str
    right: bool


PAIRS = [Pair(**json.loads(line)) for line in Path(__file__).with_name("pairs.jsonl").open(encoding="utf-8")]


@pytest.fixture(
    scope="module",
    params=["bare", *(pytest.param(form, marks=pytest.mark.slow) for form in GOLD_FORMS if form != "bare")],
)
def scored(request: pytest.FixtureRequest) -> list[tuple[Pair, float | None]]:
    """Every pair with its score, the gold written in one of the three forms: one batch for each category."""
    form = GOLD_FORMS[request.param]
    scores: list[tuple[Pair, float | None]] = []
    for _, batch in groupby(PAIRS, key=lambda pair: pair.category):
        pairs = list(batch)
        turns = [rf"<think>work</think>The answer is $\boxed{{{pair.answer}}}$." for pair in pairs]
        golds = [form.format(pair.gold) for pair in pairs]
        scores += zip(pairs, accuracy(completions=turns, solution=golds), strict=True)
    return scores


def test_every_verdict_is_right(scored: list[tuple[Pair, float | None]]) -> None:
    mistaken = [f"{pair.category}: {pair.answer} for {pair.gold}" for pair, score in scored if score != pair.right]
    assert mistaken == []
