"""Judges one answer against one gold answer; what needs algebra is asked for, so that it can be done elsewhere."""

from __future__ import annotations

import time
from dataclasses import replace
from fractions import Fraction

from rlvr_vocab.verify.equality import Algebra, same
from rlvr_vocab.verify.limits import TooLarge, Unreadable
from rlvr_vocab.verify.reading import as_written, read, read_gold
from rlvr_vocab.verify.reading.readings import Reading, Written
from rlvr_vocab.verify.verdict import (
    DIFFERENT,
    EQUAL,
    NO_ANSWER,
    TOO_LARGE,
    UNPARSEABLE,
    UNUSABLE_GOLD,
    Verdict,
)

_SHOWN = 200


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


def judge(gold: str, answer: str | None, algebra: Algebra) -> Verdict:
    """Judge an answer as it was extracted; None for no answer.

    Raises:
        AlgebraNeeded: `algebra` is `NoAlgebra`, and text and exact numbers do not decide.
    """
    started = time.perf_counter()
    verdict = _judge(gold, answer, algebra)
    return replace(verdict, milliseconds=(time.perf_counter() - started) * 1000)


def _judge(gold: str, answer: str | None, algebra: Algebra) -> Verdict:
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
