"""Batches of answers: right verdicts, each pair judged once, in any thread, and a hard one costs nobody but itself."""

import json
import time
from pathlib import Path

import pytest

from rlvr_vocab.rewards import accuracy
from rlvr_vocab.verify import Verdict, verifier, verify
from rlvr_vocab.verify.worker_pool import Outcome

# Logarithms to thousands of digits, because of the tiny first term: seconds of work in an answer of permitted length.
SLOW = "10^{-2900}+" + "+".join(rf"\ln({number}^{{\pi}})" for number in range(2, 100))
SLOW_GOLD = "10^{-2900}+" + "+".join(rf"\pi\ln {number}" for number in range(2, 100))


# Gold answers with a boxed one whose verdict is clear without the problem.
PAIRS = [json.loads(line) for line in Path(__file__).with_name("pairs.jsonl").open(encoding="utf-8")]
SLOW_FORMS = [pytest.param(form, marks=pytest.mark.slow) for form in ("${}$", r"\boxed{{{}}}")]


@pytest.mark.parametrize("form", ["{}", *SLOW_FORMS])
def test_every_verdict_is_right(form):
    turns = [rf"<think>work</think>The answer is $\boxed{{{pair['answer']}}}$." for pair in PAIRS]
    scores = accuracy(completions=turns, solution=[form.format(pair["gold"]) for pair in PAIRS])
    assert [pair for pair, score in zip(PAIRS, scores, strict=True) if score != pair["right"]] == []


class CountingPool:
    """Stands for the workers: writes down what it is asked, and answers that all is equal."""

    def __init__(self):
        self.asked = []

    def run(self, items, deadline, on_progress=None):
        self.asked += items
        return [Outcome(vars(Verdict(True, "equal")), None, "") for _ in items]


@pytest.fixture
def pool(monkeypatch):
    counting = CountingPool()
    monkeypatch.setattr(verifier, "verifier_pool", lambda: counting)
    monkeypatch.setattr(verifier, "_cache", {})
    return counting


def test_workers_get_each_pair_once_and_only_what_needs_algebra(pool):
    need_algebra = [("1+x", "x+1"), ("1+x", "x+2"), ("y=x", "2y=2x"), ("2", r"\sqrt4\approx2")]
    others = [("42", "41"), ("x", None), ("1/2", "0.5"), ("Friday", "friday"), ("x>5", r"(5,\infty)"), ("x^2", "x^2")]
    golds, answers = zip(*need_algebra, *need_algebra, *others, strict=True)
    assert [verdict.correct for verdict in verify(golds, answers)] == [True] * 8 + [False] * 2 + [True] * 4
    assert pool.asked == need_algebra
    verify(golds, answers)
    assert pool.asked == need_algebra  # cached
    verify(golds, answers, deadline=9)
    assert pool.asked == need_algebra * 2  # with more time the outcome may be another


def test_memory_of_pairs_is_bounded(pool, monkeypatch):
    monkeypatch.setattr(verifier, "_CACHE_SIZE", 10)
    for number in range(100):
        verify(["42"], [str(number)])
        verify(["42"], ["7" * 3_000 + str(number)])
        assert len(verifier._cache) <= 10


def test_a_pair_that_was_late_once_is_judged_again(pool, monkeypatch):
    late = CountingPool()
    monkeypatch.setattr(late, "run", lambda items, deadline: [Outcome(None, "timeout", "") for _ in items])
    monkeypatch.setattr(verifier, "verifier_pool", lambda: late)
    assert verify(["1+x"], ["x+1"])[0].reason == verifier.TIMEOUT
    monkeypatch.setattr(verifier, "verifier_pool", lambda: pool)
    assert verify(["1+x"], ["x+1"])[0].correct is True


@pytest.mark.parametrize(
    ("gold", "answer", "verdict"),
    [
        (r"\frac12", "0.5", Verdict(True, "equal", r"\frac12", "0.5")),
        ("42", "41", Verdict(False, "different", "42", "41")),
        ("42", None, Verdict(False, "no answer", "42")),
        ("42", r"\,", Verdict(False, "no answer", "42", r"\,", "empty")),
        ("42", "7" * 2_001, Verdict(False, "too large", "42", "7" * 200, "2001 characters")),
        ("42", "9^{9^{9}}", Verdict(False, "too large", "42", "9^{9^{9}}", "a power of astronomical size")),
        ("42", "1/(1-1)", Verdict(False, "unparseable answer", "42", "1/(1-1)", "a division by zero")),
        ("", "42", Verdict(None, "unusable gold answer", "", "42", "empty")),
    ],
)
def test_a_verdict_has_both_sides_and_the_reason(gold, answer, verdict):
    assert verify([gold], [answer]) == [verdict]


def test_a_late_pair_is_wrong_while_the_others_get_their_verdicts():
    golds, answers = [SLOW_GOLD, "1+x", SLOW_GOLD, "42"], [SLOW, "x+1", SLOW + "+1", "42"]
    started = time.monotonic()
    late, equal, different, same = verify(golds, answers, deadline=0.5)
    assert time.monotonic() - started < 5
    assert (late.correct, late.reason, late.detail) == (False, "timeout", "no answer within 0.5 s")
    assert (equal.correct, same.correct, different.correct) == (True, True, False)
