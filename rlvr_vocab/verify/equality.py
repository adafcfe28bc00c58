"""Whether an answer equals the gold answer, form by form.

Never accept on doubt: a wrong answer that is accepted will be found and repeated by the model, a right one that is
refused costs one sample. Each rule that accepts something not written alike is stated here.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Protocol

from rlvr_vocab.verify.reading.cleaning import same_words
from rlvr_vocab.verify.reading.quantities import DEGREE, PERCENT, Unit, read_number, same_value
from rlvr_vocab.verify.reading.reader import INFINITY, MINUS_INFINITY
from rlvr_vocab.verify.reading.readings import (
    INFINITE,
    Approximation,
    Bracketed,
    Choice,
    Collection,
    Equality,
    Expression,
    Inequality,
    Items,
    Matrix,
    Number,
    Reading,
    Text,
    Union,
    as_latex,
)


class Algebra(Protocol):
    """Compares formulas: `rlvr_vocab.verify.algebra` or `NoAlgebra`."""

    def equal(self, one: str, other: str) -> bool: ...
    def proportional(self, one: tuple[str, str], other: tuple[str, str]) -> int: ...
    def within(self, one: str, other: str, distance: Fraction) -> bool: ...


class AlgebraNeeded(Exception):
    """Two formulas have to be compared."""


class NoAlgebra:
    """Stands for algebra in the process that trains, where it may not be done."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise AlgebraNeeded

    equal = proportional = within = _refuse


def same(gold: Reading, answer: Reading, algebra: Algebra) -> bool:
    """Whether two readings are the same answer.

    Raises:
        Unreadable, TooLarge, ArithmeticError: the two cannot be compared.
    """
    if gold == answer:
        return True
    match gold, answer:
        case Approximation(), Approximation():
            return same(gold.exact, answer.exact, algebra) and same(gold.about, answer.about, algebra)
        case Approximation(), _:
            return same(gold.exact, answer, algebra)
        case _, Approximation():  # it must be the rounding of its own exact side
            exact = answer.exact.values[-1] if isinstance(answer.exact, Equality) else answer.exact
            rounded = algebra.within(as_latex(exact), as_latex(answer.about), answer.within)
            return rounded and same(gold, answer.exact, algebra)
        case (Equality(), _) | (_, Equality()):
            return _same_equalities(gold, answer, algebra)
        case (Inequality(), _) | (_, Inequality()):
            return _same_inequalities(gold, answer, algebra)
        case Text(), Text():
            return same_words(gold.words, answer.words)
        case Number(unit=Unit() as unit), Text():
            number, _, words = answer.words.partition(" ")
            return words == unit.name and read_number(number) == gold.value
        case Choice(), Choice():
            same_letter, one, other = gold.letter == answer.letter, gold.content, answer.content
            return same_letter and (one is None or other is None or same(one, other, algebra))
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
            brackets = (gold.opened, gold.closed) == (answer.opened, answer.closed)
            return brackets and _all_same(gold.items, answer.items, algebra)
        case Union(), Union():
            return _match(gold.items, answer.items, algebra)
        case Matrix(), Matrix():
            alike = gold.kind == answer.kind and len(gold.rows) == len(answer.rows)
            return alike and all(_all_same(*rows, algebra) for rows in zip(gold.rows, answer.rows, strict=True))
        case Number(), Number():
            return same_value(gold.value, gold.unit, answer.value, answer.unit)
        case ((Number() | Expression()), (Number() | Expression())):
            return _same_values(gold, answer, algebra)
    return False


def _same_values(gold: Number | Expression, answer: Number | Expression, algebra: Algebra) -> bool:
    if isinstance(gold, Number) and isinstance(answer, Expression) and gold.unit and answer.unit is None:
        # `5m` is five metres where the gold answer is in metres: elsewhere it is a product.
        unit = gold.unit.name if gold.unit.power == 1 else f"{gold.unit.name}^{{{gold.unit.power}}}"
        number = read_number(answer.latex.removesuffix(unit).strip()) if answer.latex.endswith(unit) else None
        if number is not None:
            return number == gold.value
    one, other = as_latex(gold), as_latex(answer)
    if INFINITE.search(one) or INFINITE.search(other):
        return False  # equal infinities are written alike
    # A unit may be left out on one side, unless it changes the value: 2π % and 2π degrees are not 2π.
    units = {gold.unit, answer.unit}
    units_agree = len(units) == 1 or (None in units and not units & {PERCENT, DEGREE})
    return units_agree and algebra.equal(one, other)


def _same_equalities(gold: Reading, answer: Reading, algebra: Algebra) -> bool:
    """`x = 5` is 5, `x = 41 = 42` is nothing, and of two equations one must be a multiple of the other."""
    match gold, answer:
        case Equality(), Equality():
            if gold.name is not None and gold.name == answer.name:
                return all(same(one, other, algebra) for one in gold.values for other in answer.values)
            first, second = _formulas(gold.sides), _formulas(answer.sides)
            return first is not None and second is not None and algebra.proportional(first, second) != 0
        case Equality(), _:
            return gold.name is not None and all(same(value, answer, algebra) for value in gold.values)
        case Choice(), Equality() if any(
            isinstance(side, Choice) and side.letter != gold.letter for side in answer.sides
        ):
            return False  # `B = C` names two
        case _, Equality():
            return bool(answer.values) and all(same(gold, value, algebra) for value in answer.values)
    return False


def _formulas(sides: Sequence[Reading]) -> tuple[str, str] | None:
    """Two sides as formulas; None where there are more, or where one is no formula or has a unit."""
    match sides:
        case [
            (Number(unit=None) | Expression(unit=None) | Choice()) as left,
            (Number(unit=None) | Expression(unit=None) | Choice()) as right,
        ]:
            return as_latex(left), as_latex(right)
    return None


def _same_inequalities(gold: Reading, answer: Reading, algebra: Algebra) -> bool:
    """An inequality solved for a variable is the interval that it describes; `(1, 2)` may be a point."""
    match gold, answer:
        case Inequality(solved=Bracketed() as one), Inequality(solved=Bracketed() as other):
            return gold.name == answer.name and same(one, other, algebra)
        case Inequality(), Inequality():
            return _same_unsolved(gold, answer, algebra)
        case Inequality(solved=Bracketed() as interval), Bracketed():
            return same(interval, answer, algebra)
        case Bracketed(), Inequality(solved=Bracketed() as interval):
            may_be_point = (gold.opened, gold.closed) == ("(", ")") and not {MINUS_INFINITY, INFINITY} & {*gold.items}
            return (answer.signs == (r"\in",) or not may_be_point) and same(gold, interval, algebra)
    return False


def _same_unsolved(gold: Inequality, answer: Inequality, algebra: Algebra) -> bool:
    """Side by side; `a ≠ b` in both directions, and of one relation its positive multiples."""
    if gold.signs != answer.signs or len(gold.sides) != len(answer.sides):
        return False
    if _all_same(gold.sides, answer.sides, algebra):
        return True
    if gold.signs == (r"\ne",):
        return _all_same(gold.sides, answer.sides[::-1], algebra)
    first, second = _formulas(gold.sides), _formulas(answer.sides)
    return first is not None and second is not None and algebra.proportional(first, second) > 0


def _same_items(gold: Sequence[Reading], answer: Sequence[Reading], algebra: Algebra) -> bool:
    """In any order, unless each is the value of another name."""
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
    """Place by place."""
    return len(gold) == len(answer) and all(same(*pair, algebra) for pair in zip(gold, answer, strict=True))


def _match(gold: Sequence[Reading], answer: Sequence[Reading], algebra: Algebra) -> bool:
    """In any order, each equally often."""
    left = list(answer)
    if len(gold) != len(left):
        return False
    for one in gold:
        partner = next((other for other in left if same(one, other, algebra)), None)
        if partner is None:
            return False
        left.remove(partner)
    return True
