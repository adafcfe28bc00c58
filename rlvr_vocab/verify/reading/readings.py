"""What an answer can be: the forms into which the reader sorts it and in which two answers are compared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from rlvr_vocab.verify.limits import TooLarge, Unreadable
from rlvr_vocab.verify.reading.units import Unit

INFINITE = re.compile(r"\\(?:infty|emptyset)(?![A-Za-z])")
# Python writes integers of up to 4,300 digits in decimal.
_MOST_BITS_SHOWN = 14_000


@dataclass(frozen=True)
class Number:
    """An exact rational number."""

    value: Fraction
    unit: Unit | None = None

    def __str__(self) -> str:
        return f"{_decimal(self.value)}{'' if self.unit is None else f' {self.unit}'}"


@dataclass(frozen=True)
class Expression:
    """Mathematics that only algebra can compare, as cleaned LaTeX."""

    latex: str
    unit: Unit | None = None

    def __str__(self) -> str:
        return f"{self.latex}{'' if self.unit is None else f' {self.unit}'}"


def _decimal(value: Fraction) -> str:
    bits = max(value.numerator.bit_length(), value.denominator.bit_length())
    return str(value) if bits <= _MOST_BITS_SHOWN else f"a number of {bits} bits"


@dataclass(frozen=True)
class Text:
    """Words, as `plain_words` writes them."""

    words: str

    def __str__(self) -> str:
        return repr(self.words)


@dataclass(frozen=True)
class Written:
    """What may be mathematics or something else, `7-11`: only what is written alike is the same."""

    text: str

    def __str__(self) -> str:
        return repr(self.text)


@dataclass(frozen=True)
class Choice:
    """The letter of a multiple-choice answer, with what it stands for where that was repeated."""

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
class Items:
    """Several answers side by side: `1, 2`, `x=1 or x=2`, `±3`. Their order says nothing, unless they are texts."""

    items: tuple[Reading, ...]

    def __str__(self) -> str:
        return ", ".join(map(str, self.items))


@dataclass(frozen=True)
class Bracketed:
    """A tuple, a point, a vector or an interval, which look alike: `(1, 2)`. `opened` and `closed` are its brackets."""

    opened: str
    items: tuple[Reading, ...]
    closed: str

    def __str__(self) -> str:
        return f"{self.opened}{', '.join(map(str, self.items))}{self.closed}"


@dataclass(frozen=True)
class Collection:
    """A set, by its elements."""

    items: tuple[Reading, ...]

    def __str__(self) -> str:
        return f"{{{', '.join(map(str, self.items))}}}"


@dataclass(frozen=True)
class Union:
    """A union of intervals or sets."""

    parts: tuple[Reading, ...]

    def __str__(self) -> str:
        return " ∪ ".join(map(str, self.parts))


@dataclass(frozen=True)
class Matrix:
    """Rows of entries; `kind` is empty for a matrix, else what else its delimiters make of it (a determinant)."""

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
        """What the equality says the value of, None where it names nothing."""
        return next((name for name in self.names if name is not None), None)

    @property
    def values(self) -> tuple[Reading, ...]:
        """The sides that are not its name."""
        left = list(zip(self.sides, self.names, strict=True))
        named = next((index for index, (_, name) in enumerate(left) if name is not None), None)
        return tuple(side for index, (side, _) in enumerate(left) if index != named)


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
    | Text
    | Written
    | Choice
    | BasedNumeral
    | Items
    | Bracketed
    | Collection
    | Union
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
        if max(reading.value.numerator.bit_length(), reading.value.denominator.bit_length()) > _MOST_BITS_SHOWN:
            raise TooLarge(str(reading))
        sign, above, below = "-" if reading.value < 0 else "", abs(reading.value.numerator), reading.value.denominator
        return f"{sign}{above}" if below == 1 else rf"{sign}\frac{{{above}}}{{{below}}}"
    if isinstance(reading, Expression):
        return reading.latex
    if isinstance(reading, Choice) and reading.content is None:
        return reading.letter
    raise Unreadable(f"{reading} is not a value")


def expressions(reading: Reading) -> Iterator[str]:
    """The formulas in a reading for which algebra would be asked: not infinities, which are compared as written."""
    match reading:
        case Expression(latex):
            if not INFINITE.search(latex):
                yield latex
        case Items(parts) | Collection(parts) | Union(parts) | Bracketed(_, parts, _):
            for part in parts:
                yield from expressions(part)
        case Equality(sides) | Inequality(sides):
            for side in sides:
                yield from expressions(side)
        case Matrix(rows):
            yield from (latex for row in rows for entry in row for latex in expressions(entry))
        case Approximation(exact):
            yield from expressions(exact)
