"""Verdicts for a batch of answers: text and exact numbers are compared here, formulas in workers that may be killed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

from rlvr_vocab.verify.equality import Algebra, AlgebraNeeded, NoAlgebra, same
from rlvr_vocab.verify.golds import as_written, read_gold
from rlvr_vocab.verify.reading.reader import read
from rlvr_vocab.verify.reading.readings import Written
from rlvr_vocab.verify.reading.scanning import MAX_CHARACTERS, TooLarge, Unreadable
from rlvr_vocab.verify.worker_pool import Outcome, WorkerPool

DEADLINE_SECONDS = 2.0

EQUAL = "equal"
DIFFERENT = "different"
NO_ANSWER = "no answer"
UNPARSEABLE = "unparseable answer"
TOO_LARGE = "too large"
TIMEOUT = "timeout"
FAILED = "failed"
UNUSABLE_GOLD = "unusable gold answer"
_REASONS = {"timeout": TIMEOUT, "too large": TOO_LARGE}
_SHOWN = 200
_CACHE_SIZE = 4_096


@dataclass(frozen=True)
class Verdict:
    """One answer, judged; `gold` and `answer` as they were read. `correct` is None without a usable gold answer."""

    correct: bool | None
    reason: str
    gold: str | None = None
    answer: str | None = None
    detail: str = ""
    milliseconds: float = 0.0

    @property
    def score(self) -> float | None:
        return None if self.correct is None else float(self.correct)

    def __str__(self) -> str:
        if self.reason == DIFFERENT:
            return f"different: {self.answer} is not {self.gold}"
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


def verify(
    golds: Sequence[str | None], answers: Sequence[str | None], deadline: float = DEADLINE_SECONDS
) -> list[Verdict]:
    """Judge each answer against the gold answer at its place. No answer can hang, crash or fill the caller.

    Args:
        golds: bare LaTeX, numbers, letters or words, in `$…$` or in a box; None for one that is no text.
        answers: final answers as `final_answer` extracts them; None where a turn has none.
        deadline: seconds for one pair.
    """
    pairs = list(zip(golds, answers, strict=True))
    known = {pair: _cache.get((*pair, deadline)) or _decided_here(*pair) for pair in dict.fromkeys(pairs)}
    decided = {pair: verdict for pair, verdict in known.items() if verdict is not None}
    undecided = [pair for pair in known if pair not in decided]
    outcomes = verifier_pool().run(undecided, deadline) if undecided else []
    decided |= {pair: _verdict_of(outcome) for pair, outcome in zip(undecided, outcomes, strict=True)}
    for (gold, answer), verdict in decided.items():
        if len(_cache) >= _CACHE_SIZE:
            _cache.clear()
        if len(gold or "") + len(answer or "") <= MAX_CHARACTERS:
            _cache[gold, answer, deadline] = verdict
    return [decided[pair] for pair in pairs]


_cache: dict[tuple[str | None, str | None, float], Verdict] = {}


def _decided_here(gold: str | None, answer: str | None) -> Verdict | None:
    try:
        return judge(gold, answer, NoAlgebra())
    except AlgebraNeeded:
        return None
    except Exception:  # noqa: BLE001 - a fault of ours: a worker meets it again, and reports it in the verdict
        return None


def _verdict_of(outcome: Outcome) -> Verdict:
    if outcome.failure is None:
        return Verdict(**outcome.value)
    reason = _REASONS.get(outcome.failure, FAILED)
    return Verdict(False, reason, detail=outcome.detail, milliseconds=outcome.milliseconds)


@cache
def verifier_pool() -> WorkerPool:
    """The workers that all verification of this process shares."""
    return WorkerPool(f"{__name__}:judge_with_algebra", preload=f"{__name__}:warm_up")


def judge_with_algebra(pair: list[str]) -> dict[str, Any]:
    """In a worker: a gold answer and an answer to the fields of their `Verdict`."""
    from rlvr_vocab.verify import algebra  # it loads mpmath, which the process that trains does without

    gold, answer = pair
    return asdict(judge(gold, answer, algebra))


def warm_up() -> None:
    """Fill mpmath's tables of constants, which the first comparison would wait for."""
    from rlvr_vocab.verify import algebra

    algebra.equal(r"\frac{x+\sqrt{2}\pi}{3}", r"\frac{1}{3}(x+2^{1/2}\pi)")


def judge(gold: str | None, answer: str | None, algebra: Algebra) -> Verdict:
    """Judge an answer as it was extracted; with `NoAlgebra` it may raise `AlgebraNeeded`."""
    started = time.perf_counter()
    verdict = _judge(gold, answer, algebra)
    return replace(verdict, milliseconds=(time.perf_counter() - started) * 1000)


def _judge(gold: str | None, answer: str | None, algebra: Algebra) -> Verdict:
    try:
        gold_reading = read_gold(gold)
    except (TooLarge, Unreadable) as error:
        return Verdict(None, UNUSABLE_GOLD, detail=str(error))
    shown, shown_answer = str(gold_reading)[:_SHOWN], None
    if answer is None:
        return Verdict(False, NO_ANSWER, shown)
    try:
        answer_reading = as_written(answer) if isinstance(gold_reading, Written) else read(answer)
        shown_answer = str(answer_reading)[:_SHOWN]
        correct = same(gold_reading, answer_reading, algebra)
    except TooLarge as error:
        return Verdict(False, TOO_LARGE, shown, shown_answer, str(error))
    except (Unreadable, ArithmeticError) as error:
        return Verdict(False, NO_ANSWER if shown_answer is None else UNPARSEABLE, shown, shown_answer, str(error))
    return Verdict(correct, EQUAL if correct else DIFFERENT, shown, shown_answer)
