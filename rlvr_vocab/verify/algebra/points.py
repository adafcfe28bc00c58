"""The points at which formulas with variables are compared: few, chosen beforehand, on both sides of every corner."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import mpmath

from rlvr_vocab.verify.algebra.evaluation import approximate
from rlvr_vocab.verify.algebra.rational import Point, exact_value
from rlvr_vocab.verify.limits import TooLarge
from rlvr_vocab.verify.reading.formula import Call, Formula, parts, variables

_NUM_POSITIVE = 4
_NUM_SIGNED = 8  # for three variables, every combination of signs
_DENOMINATOR = 997
_DIGITS = 20
_FARTHEST = 10**12
_WITH_CORNERS = frozenset(
    ("abs", "floor", "ceil", "root", "ln", "log", "arcsin", "arccos", "arctan", "arccot", "arcsec", "arccsc")
)


def points_for(*formulas: Formula) -> list[Point]:
    """Rational points, the same ones every time.

    Between 1/2 and 2 at first, positive ones and then of all signs. |x - 9| and 9 - x agree on all of these: where a
    formula has such corners, there are points of all signs beyond all of its numbers too.

    Raises:
        TooLarge: its numbers are so large that there is no going beyond them.
        Undefined, Unreadable: one of its numbers has no value.
    """
    names = sorted(frozenset[str]().union(*(variables(formula) for formula in formulas)))
    source = random.Random(0)

    def point(scale: int, signs: int) -> Point:
        """`signs` holds a bit for each of the first three variables, the others have any sign."""
        sizes = [scale * Fraction(source.randint(500, 2_000), _DENOMINATOR) for _ in names]
        bits = [signs >> place & 1 if place < 3 else source.randint(0, 1) for place in range(len(names))]
        return {name: -size if bit else size for name, size, bit in zip(names, sizes, bits, strict=True)}

    positive = [{name: abs(value) for name, value in point(1, 0).items()} for _ in range(_NUM_POSITIVE)]
    reach = _reach(formulas)
    scales = (1, 3 * reach) if reach else (1,)
    return positive + [point(scale, signs) for scale in scales for signs in range(_NUM_SIGNED)]


def _reach(formulas: tuple[Formula, ...]) -> int:
    """The size of the largest part that has corners, 0 where none has."""
    reach = max((_size(part) for formula in formulas for part in parts(formula) if _has_corners(part)), default=0)
    if reach > _FARTHEST:
        raise TooLarge("corners out of reach")
    return reach


def _size(formula: Formula) -> int:
    """The product of the numbers in a formula and of their denominators; those in exponents move no corner far."""
    if variables(formula):
        arguments = formula.arguments if isinstance(formula, Call) else ()
        inner = arguments[:1] if isinstance(formula, Call) and formula.name in ("^", "root") else arguments
        return math.prod([_size(part) for part in inner])
    value = exact_value(formula, {})
    if value is None:
        size = abs(approximate(formula, {}, _DIGITS).number)
        return int(mpmath.ceil(max(size, 1 / size))) if size else 1
    return max(abs(value.numerator), 1) * value.denominator


def _has_corners(formula: Formula) -> bool:
    if not isinstance(formula, Call) or not variables(formula):
        return False
    if formula.name == "^" and variables(formula.arguments[0]):
        exponent = exact_value(formula.arguments[1], {})
        return exponent is None or exponent.denominator != 1
    return formula.name in _WITH_CORNERS
