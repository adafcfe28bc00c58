"""The verifier against pairs of a gold answer and a boxed one whose verdict is clear without the problem."""

import json
from pathlib import Path

import pytest

from rlvr_vocab.rewards import accuracy

PAIRS = [json.loads(line) for line in Path(__file__).with_name("pairs.jsonl").open(encoding="utf-8")]
SLOW_FORMS = [pytest.param(form, marks=pytest.mark.slow) for form in ("${}$", r"\boxed{{{}}}")]


@pytest.mark.parametrize("form", ["{}", *SLOW_FORMS])
def test_every_verdict_is_right(form):
    turns = [rf"<think>work</think>The answer is $\boxed{{{pair['answer']}}}$." for pair in PAIRS]
    scores = accuracy(completions=turns, solution=[form.format(pair["gold"]) for pair in PAIRS])
    assert [pair for pair, score in zip(PAIRS, scores, strict=True) if score != pair["right"]] == []
