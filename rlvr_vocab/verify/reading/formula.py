"""What a formula is here: numbers, symbols, and operations on them, as they were written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Exact:
    """A number."""

    value: Fraction


@dataclass(frozen=True)
class Symbol:
    r"""A letter with its index and primes, `x`, `a_{1}`, or one of the constants `\pi`, `e`, `i`."""

    name: str


@dataclass(frozen=True)
class Call:
    """An operation (`+ * ^ neg inverse`) or function (`sin`, `log`, `root`, `abs`) and what it is applied to."""

    name: str
    arguments: tuple[Formula, ...]


Formula = Exact | Symbol | Call

CONSTANTS = frozenset((r"\pi", "e", "i"))


def parts(formula: Formula) -> Iterator[Formula]:
    """A formula and everything in it."""
    yield formula
    if isinstance(formula, Call):
        for argument in formula.arguments:
            yield from parts(argument)


def variables(formula: Formula) -> frozenset[str]:
    """The names of the symbols that are no constants."""
    return frozenset(part.name for part in parts(formula) if isinstance(part, Symbol)) - CONSTANTS
