"""Judges one answer against one gold answer; what needs algebra is asked for, so that it can be done elsewhere."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from fractions import Fraction

from rlvr_vocab.verify.equality import Algebra, same
from rlvr_vocab.verify.limits import TooLarge, Unreadable
from rlvr_vocab.verify.reading import as_written, read, read_gold
from rlvr_vocab.verify.reading.readings import Reading, Written

EQUAL = "equal"
DIFFERENT = "different"
NO_ANSWER = "no answer"
UNPARSEABLE = "unparseable answer"
TOO_LARGE = "too large"
TIMEOUT = "timeout"
FAILED = "failed"
UNUSABLE_GOLD = "unusable gold answer"
_SHOWN = 200


@dataclass(frozen=True)
class Verdict:
    """One answer, judged.

    Attributes:
        correct: True or False; None where the gold answer cannot be used.
        reason: `equal`, `different`, `no answer`, `unparseable answer`, `too large`, `timeout`, `failed` (the
            comparison itself broke down) or `unusable gold answer`.
        gold: the gold answer as it was read.
        answer: the answer as it was read; None where there was none or it could not be read.
        detail: what went wrong, in words; mostly empty.
        milliseconds: what reading and comparing took.
    """

    correct: bool | None
    reason: str
    gold: str | None = None
    answer: str | None = None
    detail: str = ""
    milliseconds: float = 0.0

    @property
    def score(self) -> float | None:
        """1, 0, or None where the gold answer cannot be used."""
        return None if self.correct is None else float(self.correct)

    def __str__(self) -> str:
        if self.reason == DIFFERENT:
            return f"different: {self.answer} is not {self.gold}"
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


class AlgebraNeeded(Exception):
    """Two formulas have to be compared."""


class NoAlgebra:
    """Stands for algebra where it may not be done: in the process that trains."""

    def equal(self, one: str, other: str) -> bool:
        raise AlgebraNeeded

    def proportional(self, one: tuple[str, str], other: tuple[str, str]) -> int:
        raise AlgebraNeeded

    def within(self, one: str, other: str, distance: Fraction) -> bool:
        raise AlgebraNeeded


def judge(gold: str | None, answer: str | None, algebra: Algebra) -> Verdict:
    """Judge an answer as it was extracted; None for no answer.

    Raises:
        AlgebraNeeded: `algebra` is `NoAlgebra`, and text and exact numbers do not decide.
    """
    started = time.perf_counter()
    verdict = _judge(gold, answer, algebra)
    return replace(verdict, milliseconds=(time.perf_counter() - started) * 1000)


def _judge(gold: str | None, answer: str | None, algebra: Algebra) -> Verdict:
    try:
        gold_reading = read_gold(gold)
    except (TooLarge, Unreadable) as error:
        return Verdict(None, UNUSABLE_GOLD, detail=str(error))
    shown = str(gold_reading)[:_SHOWN]
    if answer is None:
        return Verdict(False, NO_ANSWER, gold=shown)
    try:
        answer_reading = as_written(answer) if isinstance(gold_reading, Written) else read(answer)
    except TooLarge as error:
        return Verdict(False, TOO_LARGE, gold=shown, detail=str(error))
    except Unreadable as error:
        return Verdict(False, NO_ANSWER, gold=shown, detail=str(error))
    return _compared(gold_reading, answer_reading, algebra)


def _compared(gold: Reading, answer: Reading, algebra: Algebra) -> Verdict:
    shown, shown_answer = str(gold)[:_SHOWN], str(answer)[:_SHOWN]
    try:
        correct = same(gold, answer, algebra)
    except TooLarge as error:
        return Verdict(False, TOO_LARGE, shown, shown_answer, detail=str(error))
    except (Unreadable, ArithmeticError) as error:
        return Verdict(False, UNPARSEABLE, shown, shown_answer, detail=str(error))
    return Verdict(correct, EQUAL if correct else DIFFERENT, shown, shown_answer)
