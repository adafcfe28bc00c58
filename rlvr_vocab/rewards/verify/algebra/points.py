"""The points at which formulas with variables are compared: few, chosen beforehand, on both sides of every corner."""

from __future__ import annotations

import random
from fractions import Fraction

from rlvr_vocab.rewards.verify.algebra.rational import Point, exact_value
from rlvr_vocab.rewards.verify.limits import TooLarge
from rlvr_vocab.rewards.verify.reading.formula import Call, Exact, Formula, parts, variables

_NUM_POSITIVE = 4
_NUM_SIGNED = 4
_NUM_FAR = 6
_DENOMINATOR = 997
_FARTHEST = 10**12
_WITH_CORNERS = frozenset(
    ("abs", "floor", "ceil", "root", "ln", "log", "arcsin", "arccos", "arctan", "arccot", "arcsec", "arccsc")
)


def points_for(*formulas: Formula) -> list[Point]:
    """Rational points, the same ones every time.

    Between 1/2 and 2 at first, positive ones and then with any sign. |x - 9| and 9 - x agree on all of these: where a
    formula has such corners, there are points of both signs beyond all of its numbers too.

    Raises:
        TooLarge: its numbers are so large that there is no going beyond them.
    """
    names = sorted(frozenset[str]().union(*(variables(formula) for formula in formulas)))
    source = random.Random(0)
    scales = [(1, (1,))] * _NUM_POSITIVE + [(1, (1, -1))] * _NUM_SIGNED
    reach = _reach(formulas)
    if reach > _FARTHEST:
        raise TooLarge("corners out of reach")
    if reach:
        scales += [(3 * reach, (1, -1))] * _NUM_FAR
    return [
        {name: source.choice(signs) * scale * Fraction(source.randint(500, 2_000), _DENOMINATOR) for name in names}
        for scale, signs in scales
    ]


def _reach(formulas: tuple[Formula, ...]) -> int:
    """The product of all numbers in whatever has corners, 0 where nothing has."""
    reach = 0
    for part in (part for formula in formulas for part in parts(formula) if _has_corners(part)):
        reach = max(reach, 1)
        for inner in parts(part):
            if isinstance(inner, Exact):
                reach *= max(abs(inner.value.numerator), 1) * inner.value.denominator
    return reach


def _has_corners(formula: Formula) -> bool:
    if not isinstance(formula, Call) or not variables(formula):
        return False
    if formula.name == "^" and variables(formula.arguments[0]):
        exponent = exact_value(formula.arguments[1], {})
        return exponent is None or exponent.denominator != 1
    return formula.name in _WITH_CORNERS
