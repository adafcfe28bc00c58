"""The forms of an answer that the reader returns, and whether two of them are the same answer.

Doubtful answers are refused: the policy exploits a wrong answer that is accepted, while a right one that is refused
costs one sample. `same` states each rule that accepts answers with different spellings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import ModuleType
from typing import NoReturn

from rlvr_vocab.verify.cleaning import same_words
from rlvr_vocab.verify.quantities import DEGREE, PERCENT, Unit, read_number, same_value
from rlvr_vocab.verify.scanning import TooLarge, Unreadable

INFINITE = re.compile(r"\\(?:infty|emptyset)(?![A-Za-z])")
_MOST_BITS = 14_000  # Python converts integers of up to 4,300 digits to decimal text


@dataclass(frozen=True)
class Number:
    """An exact rational number."""

    value: Fraction
    unit: Unit | None = None


@dataclass(frozen=True)
class Expression:
    """A formula that algebra compares, as cleaned LaTeX."""

    latex: str
    unit: Unit | None = None


INFINITY, MINUS_INFINITY = Expression(r"\infty"), Expression(r"-\infty")


@dataclass(frozen=True)
class _Words:
    words: str


class Text(_Words):
    """Words, as `plain_words` writes them."""


class Written(_Words):
    """Text that may or may not be mathematics, `7-11`: equal only to the same spelling."""


@dataclass(frozen=True)
class Choice:
    """The letter of a multiple-choice answer, with its content if the answer repeats it."""

    letter: str
    content: Reading | None = None


@dataclass(frozen=True)
class BasedNumeral:
    """A numeral written with its base: 1011 in base 2 has the value 11."""

    value: int
    base: int


@dataclass(frozen=True)
class _Group:
    items: tuple[Reading, ...]


class Items(_Group):
    """Several answers in any order: `1, 2`, `x=1 or x=2`, `±3`."""


class Collection(_Group):
    """A set, by its elements."""


class Union(_Group):
    """A union of intervals or sets."""


@dataclass(frozen=True)
class Bracketed:
    """A tuple, point, vector or interval, which share a notation: `(1, 2)`. `opened` and `closed` are its brackets."""

    opened: str
    items: tuple[Reading, ...]
    closed: str


@dataclass(frozen=True)
class Matrix:
    """Rows of entries; `kind` is empty for a matrix, else the delimiters of a determinant or the like."""

    rows: tuple[tuple[Reading, ...], ...]
    kind: str = ""


@dataclass(frozen=True)
class Equality:
    """Sides joined by `=`; `names[i]` is the name (`x`, `f(x)`) if side i is one, None if it is a value."""

    sides: tuple[Reading, ...]
    names: tuple[str | None, ...]

    @property
    def name(self) -> str | None:
        """The first name among the sides; the equality gives its value."""
        return next(filter(None, self.names), None)

    @property
    def values(self) -> tuple[Reading, ...]:
        """All sides except `name`."""
        named = None if self.name is None else self.names.index(self.name)
        return tuple(side for index, side in enumerate(self.sides) if index != named)


@dataclass(frozen=True)
class Inequality:
    """A chain such as `1 < x ≤ 3`; `solved` is the interval of its name, if one side is the name alone."""

    sides: tuple[Reading, ...]
    signs: tuple[str, ...]
    name: str | None
    solved: Bracketed | None


@dataclass(frozen=True)
class Approximation:
    """An exact value followed by its rounding, `√2 ≈ 1.414`; `within` is one unit of the last digit shown."""

    exact: Reading
    about: Number
    within: Fraction


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
    """A value as a formula, without its unit; raises Unreadable for a tuple, a text or the like."""
    if isinstance(reading, Number):
        above, below = abs(reading.value.numerator), reading.value.denominator
        if max(above, below).bit_length() > _MOST_BITS:
            raise TooLarge("a number of thousands of digits")
        sign = "-" if reading.value < 0 else ""
        return f"{sign}{above}" if below == 1 else rf"{sign}\frac{{{above}}}{{{below}}}"
    if isinstance(reading, Expression):
        return reading.latex
    if isinstance(reading, Choice) and reading.content is None:
        return reading.letter
    raise Unreadable("a tuple, a text or the like where a value is expected")


def expressions(reading: Reading) -> Iterator[str]:
    """The formulas in a reading that algebra compares; infinities are compared as text."""
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


class AlgebraNeeded(Exception):
    """The comparison needs algebra."""


class NoAlgebra:
    """Replaces `rlvr_vocab.verify.algebra` in the training process, which must not compare formulas."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AlgebraNeeded


Algebra = ModuleType | NoAlgebra


def same(gold: Reading, answer: Reading, algebra: Algebra) -> bool:
    """Whether two readings are the same answer; raises Unreadable, TooLarge or ArithmeticError if that is unknown."""
    if gold == answer:
        return True
    match gold, answer:
        case Approximation(), Approximation():
            return same(gold.exact, answer.exact, algebra) and same(gold.about, answer.about, algebra)
        case Approximation(), _:
            return same(gold.exact, answer, algebra)
        case _, Approximation():  # it must be the rounding of its own exact side
            exact = answer.exact.values[-1] if isinstance(answer.exact, Equality) else answer.exact
            is_rounding = algebra.within(as_latex(exact), as_latex(answer.about), answer.within)
            return is_rounding and same(gold, answer.exact, algebra)

        # `x = 5` is 5, `x = 41 = 42` equals nothing; of two equations one must be a multiple of the other.
        case Equality(), Equality() if gold.name is not None and gold.name == answer.name:
            return all(same(one, other, algebra) for one in gold.values for other in answer.values)
        case Equality(), Equality():
            return _factor_sign(gold.sides, answer.sides, algebra) != 0
        case Equality(), _:
            return gold.name is not None and all(same(value, answer, algebra) for value in gold.values)
        case Choice(letter), Equality() if any(
            isinstance(side, Choice) and side.letter != letter for side in answer.sides
        ):
            return False  # `B = C` has two names
        case _, Equality():
            return bool(answer.values) and all(same(gold, value, algebra) for value in answer.values)

        # An inequality solved for a variable is the interval that it describes; `(1, 2)` may be a point.
        case Inequality(solved=Bracketed() as one), Inequality(solved=Bracketed() as other):
            return gold.name == answer.name and same(one, other, algebra)
        case Inequality(), Inequality():
            return _same_unsolved(gold, answer, algebra)
        case Inequality(solved=Bracketed() as interval), Bracketed():
            return same(interval, answer, algebra)
        case Bracketed(), Inequality(solved=Bracketed() as interval):
            may_be_point = (gold.opened, gold.closed) == ("(", ")") and not {MINUS_INFINITY, INFINITY} & {*gold.items}
            return (answer.signs == (r"\in",) or not may_be_point) and same(gold, interval, algebra)

        case Text(), Text():
            return same_words(gold.words, answer.words)
        case Number(unit=Unit() as unit), Text():
            number, _, words = answer.words.partition(" ")
            return words == unit.name and read_number(number) == gold.value
        case Choice(), Choice():
            left, right = gold.content, answer.content
            return gold.letter == answer.letter and (left is None or right is None or same(left, right, algebra))
        case Choice(content=content), _ if content is not None:
            return same(content, answer, algebra)

        case ((Items() | Collection()), (Items() | Collection())):
            return _same_items(gold.items, answer.items, algebra)
        case (Bracketed() as point, Items() as named) | (Items() as named, Bracketed() as point):
            # `x = 1, y = 2` is the point `(1, 2)`; `(1, 2]` is an interval.
            values = [item.values[0] for item in named.items if isinstance(item, Equality) and len(item.values) == 1]
            is_point = (point.opened, point.closed) == ("(", ")")
            return is_point and _are_named(named.items) and _all_same(point.items, values, algebra)
        case Bracketed(), Bracketed():
            are_alike = (gold.opened, gold.closed) == (answer.opened, answer.closed)
            return are_alike and _all_same(gold.items, answer.items, algebra)
        case Union(), Union():
            return _match(gold.items, answer.items, algebra)
        case Matrix(), Matrix():
            are_alike = gold.kind == answer.kind and len(gold.rows) == len(answer.rows)
            return are_alike and all(_all_same(*rows, algebra) for rows in zip(gold.rows, answer.rows, strict=True))

        case Number(), Number():
            return same_value(gold.value, gold.unit, answer.value, answer.unit)
        case ((Number() | Expression()), (Number() | Expression())):
            return _same_values(gold, answer, algebra)
    return False


def _same_values(gold: Number | Expression, answer: Number | Expression, algebra: Algebra) -> bool:
    if isinstance(gold, Number) and isinstance(answer, Expression) and gold.unit and answer.unit is None:
        # `5m` is five metres if the gold answer is in metres, else a product.
        unit = gold.unit.name if gold.unit.power == 1 else f"{gold.unit.name}^{{{gold.unit.power}}}"
        number = read_number(answer.latex.removesuffix(unit).strip()) if answer.latex.endswith(unit) else None
        if number is not None:
            return number == gold.value
    one, other = as_latex(gold), as_latex(answer)
    if INFINITE.search(one) or INFINITE.search(other):
        return False  # equal infinities have the same spelling
    # One side may omit a unit, unless the unit changes the value: 2π % and 2π degrees are not 2π.
    units = {gold.unit, answer.unit}
    units_agree = len(units) == 1 or (None in units and not units & {PERCENT, DEGREE})
    return units_agree and algebra.equal(one, other)


def _same_unsolved(gold: Inequality, answer: Inequality, algebra: Algebra) -> bool:
    """Whether two inequalities agree side by side, `a ≠ b` in both directions, or are positive multiples."""
    if gold.signs != answer.signs or len(gold.sides) != len(answer.sides):
        return False
    if _all_same(gold.sides, answer.sides, algebra):
        return True
    if gold.signs == (r"\ne",):
        return _all_same(gold.sides, answer.sides[::-1], algebra)
    return _factor_sign(gold.sides, answer.sides, algebra) > 0


def _factor_sign(gold: Sequence[Reading], answer: Sequence[Reading], algebra: Algebra) -> int:
    """The sign of the factor between two relations; 0 without one, or if a side is not a formula or has a unit."""

    def is_formula(side: Reading) -> bool:
        return isinstance(side, Choice) or (isinstance(side, Number | Expression) and side.unit is None)

    first, second = (
        [as_latex(side) for side in sides] if len(sides) == 2 and all(map(is_formula, sides)) else []
        for sides in (gold, answer)
    )
    return int(algebra.proportional(first, second)) if first and second else 0


def _same_items(gold: Sequence[Reading], answer: Sequence[Reading], algebra: Algebra) -> bool:
    """Whether items agree in any order; in the given order if each is the value of a different name."""
    if not _are_named(gold) and not _are_named(answer):
        return _match(gold, answer, algebra)
    if all(isinstance(item, Equality) for item in (*gold, *answer)):
        return _all_same(sorted(gold, key=_name_of), sorted(answer, key=_name_of), algebra)
    return _all_same(gold, answer, algebra)


def _are_named(items: Sequence[Reading]) -> bool:
    """Whether items are the values of different names in alphabetical order, as in `x = 1, y = 2`."""
    names = [_name_of(item) for item in items]
    return len(names) > 1 and "" not in names and names == sorted(set(names))


def _name_of(item: Reading) -> str:
    return (item.name or "") if isinstance(item, Equality) else ""


def _all_same(gold: Sequence[Reading], answer: Sequence[Reading], algebra: Algebra) -> bool:
    """Whether readings agree in the given order."""
    return len(gold) == len(answer) and all(same(*pair, algebra) for pair in zip(gold, answer, strict=True))


def _match(gold: Sequence[Reading], answer: Sequence[Reading], algebra: Algebra) -> bool:
    """Whether readings agree in any order, each equally often."""
    left = list(answer)
    if len(gold) != len(left):
        return False
    for one in gold:
        partner = next((other for other in left if same(one, other, algebra)), None)
        if partner is None:
            return False
        left.remove(partner)
    return True
