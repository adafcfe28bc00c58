"""Whether an answer says what the gold answer says, form by form.

Never accept on doubt: a wrong answer that is accepted will be found and repeated by the model, a right one that is
refused costs one sample. Each rule that accepts something not written alike is stated here.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Protocol

from rlvr_vocab.verify.reading.numbers import read_number
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
from rlvr_vocab.verify.reading.relations import INFINITY, MINUS_INFINITY
from rlvr_vocab.verify.reading.units import DEGREE, PERCENT, Unit, same_value
from rlvr_vocab.verify.reading.wording import same_words


class Algebra(Protocol):
    """What compares formulas: `rlvr_vocab.verify.algebra.comparison`, or something that says that it is needed."""

    def equal(self, one: str, other: str) -> bool: ...
    def proportional(self, one: tuple[str, str], other: tuple[str, str]) -> int: ...
    def within(self, one: str, other: str, distance: Fraction) -> bool: ...


def same(gold: Reading, answer: Reading, algebra: Algebra) -> bool:
    """Whether two readings say the same; `algebra` is asked where formulas have to be compared.

    Raises:
        Unreadable, TooLarge, ArithmeticError: the two cannot be compared.
    """
    if gold == answer:
        return True
    match gold, answer:
        case (Approximation(), _) | (_, Approximation()):
            return _same_approximations(gold, answer, algebra)
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
            return _names_places_of(point, named) and _all_same(point.items, _values(named), algebra)
        case Bracketed(), Bracketed():
            brackets = (gold.opened, gold.closed) == (answer.opened, answer.closed)
            return brackets and _all_same(gold.items, answer.items, algebra)
        case Union(), Union():
            return _match(gold.parts, answer.parts, algebra)
        case Matrix(), Matrix():
            return _same_matrices(gold, answer, algebra)
        case Number(), Number():
            return same_value(gold.value, gold.unit, answer.value, answer.unit)
        case ((Number() | Expression()), (Number() | Expression())):
            return _same_values(gold, answer, algebra)
    return False


def _same_values(gold: Number | Expression, answer: Number | Expression, algebra: Algebra) -> bool:
    if isinstance(gold, Number) and isinstance(answer, Expression):
        answer = _with_unit_of(gold, answer)
        if isinstance(answer, Number):
            return gold == answer
    one, other = as_latex(gold), as_latex(answer)
    if INFINITE.search(one) or INFINITE.search(other):
        return False  # equal infinities are written alike
    return _units_agree(gold, answer) and algebra.equal(one, other)


def _with_unit_of(gold: Number, answer: Expression) -> Number | Expression:
    """`5m` as five metres where the gold answer is in metres: elsewhere it is a product."""
    if gold.unit is None or answer.unit is not None:
        return answer
    written = gold.unit.name if gold.unit.power == 1 else f"{gold.unit.name}^{{{gold.unit.power}}}"
    number = read_number(answer.latex.removesuffix(written).strip()) if answer.latex.endswith(written) else None
    return answer if number is None else Number(number, gold.unit)


def _units_agree(gold: Number | Expression, answer: Number | Expression) -> bool:
    """A unit may be left out on one side, unless it changes the value: 2π % and 2π degrees are not 2π."""
    if gold.unit == answer.unit:
        return True
    return None in (gold.unit, answer.unit) and not {gold.unit, answer.unit} & {PERCENT, DEGREE}


def _same_approximations(gold: Reading, answer: Reading, algebra: Algebra) -> bool:
    """The exact sides must be the same, and what is said to be about the answer must be a rounding of it."""
    if isinstance(gold, Approximation) and isinstance(answer, Approximation):
        return same(gold.exact, answer.exact, algebra) and same(gold.about, answer.about, algebra)
    if isinstance(gold, Approximation):
        return same(gold.exact, answer, algebra)
    assert isinstance(answer, Approximation)
    exact = answer.exact.values[-1] if isinstance(answer.exact, Equality) else answer.exact
    rounded = algebra.within(as_latex(exact), as_latex(answer.about), answer.within)
    return rounded and same(gold, answer.exact, algebra)


def _same_equalities(gold: Reading, answer: Reading, algebra: Algebra) -> bool:
    """`x = 5` says 5, `x = 41 = 42` says nothing, and of two equations one must be a multiple of the other."""
    if isinstance(gold, Equality) and isinstance(answer, Equality):
        if gold.name is not None and gold.name == answer.name:
            return all(same(one, other, algebra) for one in gold.values for other in answer.values)
        return _same_equations(gold, answer, algebra)
    if isinstance(gold, Equality):
        return gold.name is not None and all(same(value, answer, algebra) for value in gold.values)
    assert isinstance(answer, Equality)
    if isinstance(gold, Choice) and any(
        isinstance(side, Choice) and side.letter != gold.letter for side in answer.sides
    ):
        return False  # `B = C` names two
    return bool(answer.values) and all(same(gold, value, algebra) for value in answer.values)


def _same_equations(gold: Equality, answer: Equality, algebra: Algebra) -> bool:
    first, second = _formulas(gold.sides), _formulas(answer.sides)
    return first is not None and second is not None and algebra.proportional(first, second) != 0


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
    """An inequality solved for a variable is the same as the interval that it describes; `(1, 2)` may be a point."""
    match gold, answer:
        case Inequality(), Inequality():
            if gold.solved and answer.solved:
                return gold.name == answer.name and same(gold.solved, answer.solved, algebra)
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
    """In any order, unless each says the value of another name."""
    if not _are_named(gold) and not _are_named(answer):
        return _match(gold, answer, algebra)
    if all(isinstance(item, Equality) for item in (*gold, *answer)):
        return _all_same(sorted(gold, key=_name_of), sorted(answer, key=_name_of), algebra)
    return _all_same(gold, answer, algebra)


def _are_named(items: Sequence[Reading]) -> bool:
    """Whether items say the values of different names, as `x = 1, y = 2` does, in the order of the alphabet."""
    names = [_name_of(item) for item in items]
    return len(names) > 1 and "" not in names and names == sorted(set(names))


def _name_of(item: Reading) -> str:
    return (item.name or "") if isinstance(item, Equality) else ""


def _names_places_of(point: Bracketed, named: Items) -> bool:
    """Whether `x = 1, y = 2` may say the same as `(1, 2)`; it does not as `(1, 2]`, which is an interval."""
    return _are_named(named.items) and (point.opened, point.closed) == ("(", ")")


def _values(named: Items) -> tuple[Reading, ...]:
    return tuple(item.values[0] for item in named.items if isinstance(item, Equality) and len(item.values) == 1)


def _same_matrices(gold: Matrix, answer: Matrix, algebra: Algebra) -> bool:
    if gold.kind != answer.kind or len(gold.rows) != len(answer.rows):
        return False
    return all(_all_same(one, other, algebra) for one, other in zip(gold.rows, answer.rows, strict=True))


def _all_same(gold: Sequence[Reading], answer: Sequence[Reading], algebra: Algebra) -> bool:
    """Place by place."""
    return len(gold) == len(answer) and all(same(*pair, algebra) for pair in zip(gold, answer, strict=True))


def _match(gold: Sequence[Reading], answer: Sequence[Reading], algebra: Algebra) -> bool:
    """In any order, each said equally often."""
    right = list(answer)
    if len(gold) != len(right):
        return False
    for one in gold:
        partner = next((other for other in right if same(one, other, algebra)), None)
        if partner is None:
            return False
        right.remove(partner)
    return True
