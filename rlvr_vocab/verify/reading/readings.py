"""The forms of an answer, into which the reader sorts it and in which two answers are compared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from rlvr_vocab.verify.reading.quantities import Unit
from rlvr_vocab.verify.reading.scanning import TooLarge, Unreadable

INFINITE = re.compile(r"\\(?:infty|emptyset)(?![A-Za-z])")
# Python writes integers of up to 4,300 digits in decimal.
_MOST_BITS_SHOWN = 14_000


@dataclass(frozen=True)
class Number:
    """An exact rational number."""

    value: Fraction
    unit: Unit | None = None

    @property
    def bits(self) -> int:
        return max(self.value.numerator.bit_length(), self.value.denominator.bit_length())

    def __str__(self) -> str:
        shown = str(self.value) if self.bits <= _MOST_BITS_SHOWN else f"a number of {self.bits} bits"
        return shown if self.unit is None else f"{shown} {self.unit}"


@dataclass(frozen=True)
class Expression:
    """A formula that algebra compares, as cleaned LaTeX."""

    latex: str
    unit: Unit | None = None

    def __str__(self) -> str:
        return self.latex if self.unit is None else f"{self.latex} {self.unit}"


@dataclass(frozen=True)
class _Words:
    words: str

    def __str__(self) -> str:
        return repr(self.words)


class Text(_Words):
    """Words, as `plain_words` writes them."""


class Written(_Words):
    """Mathematics or something else, `7-11`: equal only to what is written alike."""


@dataclass(frozen=True)
class Choice:
    """The letter of a multiple-choice answer, with its content where that was repeated."""

    letter: str
    content: Reading | None = None

    def __str__(self) -> str:
        return f"choice {self.letter}{'' if self.content is None else f' ({self.content})'}"


@dataclass(frozen=True)
class BasedNumeral:
    """A numeral with its base written behind it: 1011 in base 2 has the value 11."""

    value: int
    base: int

    def __str__(self) -> str:
        return f"{self.value} written in base {self.base}"


@dataclass(frozen=True)
class _Group:
    items: tuple[Reading, ...]

    def __str__(self) -> str:
        return ", ".join(map(str, self.items))


class Items(_Group):
    """Several answers side by side in any order: `1, 2`, `x=1 or x=2`, `±3`."""


class Collection(_Group):
    """A set, by its elements."""

    def __str__(self) -> str:
        return f"{{{super().__str__()}}}"


class Union(_Group):
    """A union of intervals or sets."""

    def __str__(self) -> str:
        return " ∪ ".join(map(str, self.items))


@dataclass(frozen=True)
class Bracketed:
    """A tuple, a point, a vector or an interval, which look alike: `(1, 2)`. `opened` and `closed` are its brackets."""

    opened: str
    items: tuple[Reading, ...]
    closed: str

    def __str__(self) -> str:
        return f"{self.opened}{', '.join(map(str, self.items))}{self.closed}"


@dataclass(frozen=True)
class Matrix:
    """Rows of entries; `kind` is empty for a matrix, else the delimiters of a determinant or the like."""

    rows: tuple[tuple[Reading, ...], ...]
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.kind}[{'; '.join(', '.join(map(str, row)) for row in self.rows)}]"


@dataclass(frozen=True)
class Equality:
    """Sides joined by `=`; `names[i]` is the name that side i is (`x`, `f(x)`), None where it is a value."""

    sides: tuple[Reading, ...]
    names: tuple[str | None, ...]

    def __str__(self) -> str:
        return " = ".join(map(str, self.sides))

    @property
    def name(self) -> str | None:
        """The first name among the sides, whose value the equality states."""
        return next(filter(None, self.names), None)

    @property
    def values(self) -> tuple[Reading, ...]:
        """The sides but for that name."""
        named = None if self.name is None else self.names.index(self.name)
        return tuple(side for index, side in enumerate(self.sides) if index != named)


@dataclass(frozen=True)
class Inequality:
    """A chain such as `1 < x ≤ 3`; `solved` is the interval of the name in it, where it stands alone."""

    sides: tuple[Reading, ...]
    signs: tuple[str, ...]
    name: str | None
    solved: Bracketed | None

    def __str__(self) -> str:
        rest = (f" {sign} {side}" for sign, side in zip(self.signs, self.sides[1:], strict=True))
        return f"{self.sides[0]}{''.join(rest)}"


@dataclass(frozen=True)
class Approximation:
    """An exact value with its rounding behind it, `√2 ≈ 1.414`; `within` is one unit of the last digit shown."""

    exact: Reading
    about: Number
    within: Fraction

    def __str__(self) -> str:
        return f"{self.exact} ≈ {self.about}"


Reading = (
    Number
    | Expression
    | _Words
    | Choice
    | BasedNumeral
    | _Group
    | Bracketed
    | Matrix
    | Equality
    | Inequality
    | Approximation
)


def as_latex(reading: Reading) -> str:
    """A value as a formula, its unit left out.

    Raises:
        Unreadable: it is a tuple, a text or the like.
        TooLarge: it is a number that Python does not write in decimal.
    """
    if isinstance(reading, Number):
        if reading.bits > _MOST_BITS_SHOWN:
            raise TooLarge(str(reading))
        sign, above, below = "-" if reading.value < 0 else "", abs(reading.value.numerator), reading.value.denominator
        return f"{sign}{above}" if below == 1 else rf"{sign}\frac{{{above}}}{{{below}}}"
    if isinstance(reading, Expression):
        return reading.latex
    if isinstance(reading, Choice) and reading.content is None:
        return reading.letter
    raise Unreadable(f"{reading} is not a value")


def expressions(reading: Reading) -> Iterator[str]:
    """The formulas in a reading that algebra compares: not infinities, which are compared as written."""
    match reading:
        case Expression(latex):
            if not INFINITE.search(latex):
                yield latex
        case _Group(parts) | Bracketed(_, parts, _) | Equality(parts) | Inequality(parts):
            for part in parts:
                yield from expressions(part)
        case Matrix(rows):
            yield from (latex for row in rows for entry in row for latex in expressions(entry))
        case Approximation(exact):
            yield from expressions(exact)
