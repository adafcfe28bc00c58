r"""Decides whether two formulas are equal, with exact rational numbers if they suffice, else with hundreds of digits.

Symbolic simplification may not terminate, and a comparison of few digits accepts values that are merely close. So two
formulas are equal here if their values agree. Numbers are compared once, formulas with variables at fixed points; for
rational functions this errs with negligible probability (Schwartz, Zippel). A formula that cannot be evaluated equals
no other, except in a notation that only math-verify's parser reads (`same_tree`). For worker processes only.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

import mpmath

from rlvr_vocab.verify.parser import CONSTANTS, Call, Exact, Formula, Symbol, parse, parts, variables
from rlvr_vocab.verify.quantities import power_of
from rlvr_vocab.verify.scanning import MAX_BITS, TooLarge, Unreadable

Point = Mapping[str, Fraction]

_LARGEST_FACTORIAL = 1_000
_LARGEST_DEGREE = 1_000
# Beyond this, sine and cosine need more digits of the argument than are computed.
_LARGEST_ARGUMENT = 10**30
# The base of a logarithm written without one (e or 10 by convention): an identity for this base holds for every base.
_SOME_BASE = 5.7193


class Undefined(ArithmeticError):
    """A formula without a value: a division by zero, the logarithm of 0."""


_EXACT_OPERATIONS = frozenset(("+", "*", "neg", "inverse", "^"))


def exact_value(formula: Formula, point: Point) -> Fraction | None:
    """The value at a point; None if arithmetic with rational numbers is not sufficient. Raises like `Evaluation`."""
    if isinstance(formula, Exact):
        return formula.value
    if isinstance(formula, Symbol):
        return point.get(formula.name)
    if formula.name not in _EXACT_OPERATIONS:
        return None
    values = []
    for argument in formula.arguments:
        value = exact_value(argument, point)
        if value is None:
            return None
        values.append(value)
    match formula.name, values:
        case "+", _:
            return _bounded(sum(values, Fraction(0)))
        case "*", _:
            return reduce(lambda product, factor: _bounded(product * factor), values)
        case "^", [base, exponent]:
            return _exact_power(base, exponent)
        case "inverse", [Fraction(numerator=0)]:
            raise Undefined("a division by zero")
    return -values[0] if formula.name == "neg" else 1 / values[0]


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise TooLarge("a number of astronomical size")
    return value


def _exact_power(base: Fraction, exponent: Fraction) -> Fraction | None:
    if exponent.denominator != 1:
        return None
    if base == 0 and exponent <= 0:
        raise Undefined("0 to a power that is not positive")
    power = power_of(base, exponent.numerator)
    if power is None:
        raise TooLarge("a power of astronomical size")
    return power


def rounding(digits: int) -> mpmath.mpf:
    """The rounding error of a computation with this many digits, relative to its largest intermediate number."""
    return mpmath.mpf(10) ** -(digits * 9 // 10)


class Evaluation:
    """The value `number` of a formula at a point, with the largest and the smallest intermediate number.

    Sums count only for the largest number, because the result of a sum may be pure rounding error. Raises Undefined if
    there is no value, TooLarge for an intermediate number of more than `MAX_BITS` bits, Unreadable for what is not
    evaluated here.
    """

    def __init__(self, formula: Formula, point: Point, digits: int) -> None:
        with mpmath.workdps(digits + 10):
            self._point, self._rounding = point, rounding(digits)
            self.largest = self.smallest = mpmath.mpf(1)
            self.number = self._value(formula)

    def _value(self, formula: Formula) -> mpmath.mpc:
        try:
            value = mpmath.mpc(self._compute(formula))
        except (TooLarge, Unreadable):
            raise
        except (ZeroDivisionError, ValueError) as error:  # mpmath at a pole
            raise Undefined(str(error)) from error
        if not mpmath.isfinite(value):
            raise Undefined("an infinite value")
        size = abs(value)
        self.largest = max(self.largest, size)
        if size and not (isinstance(formula, Call) and formula.name == "+"):
            self.smallest = min(self.smallest, size)
        return value

    def _compute(self, formula: Formula) -> Any:
        if isinstance(formula, Exact):
            return mpmath.mpf(formula.value.numerator) / formula.value.denominator
        if isinstance(formula, Symbol):
            if formula.name in CONSTANTS:
                return {r"\pi": +mpmath.pi, "e": +mpmath.e, "i": mpmath.j}[formula.name]
            value = self._point[formula.name]
            return mpmath.mpf(value.numerator) / value.denominator
        arguments = [self._value(argument) for argument in formula.arguments]
        match formula.name, arguments:
            case "+", _:
                total = mpmath.fsum(arguments)
                is_rounding = abs(total) <= self._rounding * max(map(abs, arguments))
                return mpmath.mpc(0) if is_rounding else total  # otherwise it could become a divisor
            case "*", _:
                return mpmath.fprod(arguments)
            case "neg", [number]:
                return -number
            case "inverse", [divisor]:
                return 1 / divisor
            case "^", [base, exponent]:
                return _power(base, exponent, exact_value(formula.arguments[1], {}))
            case "root", [radicand, degree]:
                return _root(radicand, _real(degree))
            case "ln", [number]:
                return mpmath.log(number)
            case "log", [number, *base]:
                return mpmath.log(number) / mpmath.log(mpmath.mpc(base[0] if base else _SOME_BASE))
            case "abs", [number]:
                return abs(number)
            case "floor" | "ceil", [number]:
                real = _real(number)
                nearest = mpmath.nint(real)
                is_whole = abs(real - nearest) <= self._rounding * abs(real)
                return nearest if is_whole else getattr(mpmath, formula.name)(real)
            case "factorial" | "binom", _:
                return self._factorial(*map(_real, arguments))
            case name, [argument]:
                return self._entire(getattr(mpmath, name.replace("arc", "a")), argument)

    def _factorial(self, number: mpmath.mpf, *below: mpmath.mpf) -> mpmath.mpf:
        """For a variable, the gamma function: it obeys the same laws and has values between the integers."""
        if max(map(abs, (number, *below))) > _LARGEST_FACTORIAL:
            raise TooLarge("the factorial or a binomial coefficient of a large number")
        if below:
            return mpmath.binomial(number, *below)
        if not self._point and not mpmath.isint(number):
            raise Unreadable("the factorial of something that is not a whole number")
        return mpmath.factorial(number)

    def _entire(self, function: Callable[[Any], Any], argument: mpmath.mpc) -> Any:
        if abs(argument) > _LARGEST_ARGUMENT:
            raise TooLarge(f"{function.__name__} of a huge number")
        # cos x is within about x² of 1 for a small x, and tanh x is as close to 1 for a large one.
        unseen = mpmath.exp(-2 * abs(mpmath.re(argument))) if function is mpmath.tanh else abs(argument) ** 2
        self.smallest = min(self.smallest, unseen or 1)
        return function(argument)


def _power(base: mpmath.mpc, exponent: mpmath.mpc, rational_exponent: Fraction | None) -> mpmath.mpc:
    if base == 0:
        if mpmath.re(exponent) <= 0:
            raise Undefined("0 to a power that is not positive")
        return mpmath.mpc(0)
    if abs(exponent) * (1 + abs(mpmath.log(abs(base), 2))) > MAX_BITS:
        raise TooLarge("a power of astronomical size")
    odd_root = rational_exponent is not None and rational_exponent.denominator % 2 and rational_exponent.denominator > 1
    if odd_root and mpmath.im(base) == 0 and mpmath.re(base) < 0:
        raise Undefined("an odd root of a negative number, which may be the real or the principal one")
    return mpmath.power(base, exponent)


def _root(radicand: mpmath.mpc, degree: mpmath.mpf) -> mpmath.mpc:
    r"""`\sqrt[n]{x}`: the real root for odd n and negative x."""
    if not mpmath.isint(degree) or not 2 <= degree <= _LARGEST_DEGREE:
        raise Unreadable("a root whose degree is no number from 2 on")
    if int(degree) % 2 and mpmath.im(radicand) == 0 and mpmath.re(radicand) < 0:
        return -mpmath.root(-radicand, int(degree))
    return mpmath.root(radicand, int(degree))


def _real(value: mpmath.mpc) -> mpmath.mpf:
    if mpmath.im(value) != 0:
        raise Undefined("the order of complex numbers")
    return mpmath.re(value)


_DIGITS_OF_FIRST_LOOK = 50
_DIGITS_OF_NUMBERS = 1_000
_DIGITS_OF_FORMULAS = 200
_MOST_DIGITS = 6_000
_FEWEST_POINTS = 3


def equal(one: str, other: str) -> bool:
    """Whether two formulas in the spelling of `clean` have the same value; raises like `Evaluation`."""
    if not _is_read(one) and not _is_read(other):
        return same_tree(one, other)
    left, right = parse(one), parse(other)
    if variables(left) != variables(right):
        return False
    if not variables(left):
        return _equal_at(left, right, {}, _DIGITS_OF_NUMBERS)
    [[left], [right]] = sides = _with_real_roots([left], [right])
    num_agreeing = 0
    for point in points_for(left, right):
        try:
            if not _equal_at(left, right, point, _DIGITS_OF_FORMULAS):
                return False
            num_agreeing += 1
        except Undefined:
            if _has_value(sides[0], point) != _has_value(sides[1], point):
                return False
    return num_agreeing >= _FEWEST_POINTS


def within(one: str, other: str, distance: Fraction) -> bool:
    """Whether two numbers are less than `distance` apart; raises like `equal`."""
    left, right = parse(one), parse(other)
    if variables(left) or variables(right):
        return False
    with mpmath.workdps(_DIGITS_OF_FIRST_LOOK):
        values = [Evaluation(side, {}, _DIGITS_OF_FIRST_LOOK).number for side in (left, right)]
        return bool(abs(values[0] - values[1]) < mpmath.mpf(distance.numerator) / distance.denominator)


def proportional(one: Sequence[str], other: Sequence[str]) -> int:
    """The sign of the factor between two equations `one[0] = one[1]`; 0 without one, or without a variable."""
    first, second = _with_real_roots([*map(parse, one)], [*map(parse, other)])
    sides = [*first, *second]
    names = [variables(side) for side in sides]
    if not names[0] | names[1] or names[0] | names[1] != names[2] | names[3]:
        return 0
    ratios = []
    for point in points_for(*sides):
        try:
            ratios.append(_ratio_of_differences(sides, point))
        except Undefined:
            if _has_value(first, point) != _has_value(second, point):
                return 0
    if len(ratios) < _FEWEST_POINTS or ratios[0] == 0:
        return 0
    with mpmath.workdps(_DIGITS_OF_FORMULAS):
        factor = mpmath.re(ratios[0])
        close = abs(factor) * mpmath.mpf(10) ** -(_DIGITS_OF_FORMULAS // 2)
        is_constant = all(abs(ratio - factor) < close for ratio in ratios)
        return int(mpmath.sign(factor)) if is_constant else 0


def _ratio_of_differences(sides: Sequence[Formula], point: Point) -> mpmath.mpc:
    """The difference of the first two sides divided by that of the last two; 0 if either difference is 0."""
    with mpmath.workdps(_DIGITS_OF_FORMULAS):
        values = [Evaluation(side, point, _DIGITS_OF_FORMULAS) for side in sides]
        above, below = values[0].number - values[1].number, values[2].number - values[3].number
        noise = max(value.largest for value in values) * rounding(_DIGITS_OF_FORMULAS)
        return above / below if min(abs(above), abs(below)) > noise else mpmath.mpf(0)


def _is_read(latex: str) -> bool:
    try:
        parse(latex)
    except Unreadable:
        return False
    return True


def _has_value(side: Sequence[Formula], point: Point) -> bool:
    try:
        return all(Evaluation(formula, point, _DIGITS_OF_FIRST_LOOK) for formula in side)
    except Undefined:
        return False


def _equal_at(left: Formula, right: Formula, point: Point, digits: int) -> bool:
    exact = exact_value(left, point), exact_value(right, point)
    if None not in exact:
        return exact[0] == exact[1]
    if not _agree(left, right, point, _DIGITS_OF_FIRST_LOOK)[0]:
        return False
    while True:
        agree, spread = _agree(left, right, point, digits)
        needed = 2 * spread + 100
        if needed > _MOST_DIGITS:
            raise TooLarge("numbers too far apart to be compared")
        if not agree or needed <= digits:
            return agree
        digits = needed


def _agree(left: Formula, right: Formula, point: Point, digits: int) -> tuple[bool, int]:
    """Whether two values differ by at most rounding, and the digits between the largest and the smallest number.

    With fewer digits, a change of the smallest number would have no effect.
    """
    one, other = Evaluation(left, point, digits), Evaluation(right, point, digits)
    largest, smallest = max(one.largest, other.largest), min(one.smallest, other.smallest)
    with mpmath.workdps(digits):
        agree = abs(one.number - other.number) <= largest * rounding(digits)
        return bool(agree), int(mpmath.log10(largest / smallest))


def _with_real_roots(*sides: Sequence[Formula]) -> list[list[Formula]]:
    r"""The formulas with `x^{1/3}` as `\sqrt[3]{x}` where both sides have odd roots of variables.

    If only one side has them, such a power of a negative number has no value, as it may be the principal root.
    """
    are_real = all(any(_is_odd_root(part) for formula in side for part in parts(formula)) for side in sides)
    return [[_real_roots(formula) if are_real else formula for formula in side] for side in sides]


def _is_odd_root(formula: Formula) -> bool:
    if not isinstance(formula, Call) or formula.name not in ("^", "root") or not variables(formula.arguments[0]):
        return False
    number = exact_value(formula.arguments[1], {}) or Fraction(0)
    degree = number.denominator if formula.name == "^" else number.numerator
    return degree % 2 == 1 and degree > 1


def _real_roots(formula: Formula) -> Formula:
    if not isinstance(formula, Call):
        return formula
    arguments = tuple(map(_real_roots, formula.arguments))
    if formula.name != "^" or not _is_odd_root(formula):
        return Call(formula.name, arguments)
    exponent = exact_value(formula.arguments[1], {}) or Fraction(1)
    root = Call("root", (arguments[0], Exact(Fraction(exponent.denominator))))
    return Call("^", (root, Exact(Fraction(exponent.numerator))))


# The parser drops primes and indices of numbers, adds adjacent numbers, picks a reading of `1/2x`, multiplies letters.
_GUESSED_AT = re.compile(
    r"'|[0-9)}]_|(?<![\\A-Za-z])[A-Za-z][0-9]|[0-9] [0-9]|/[0-9]+ ?[A-Za-z\\(]|[%:?~]"
    r"|\\(?:text|dots|pm|mp|equiv|not|to|circ|[bp]?mod)(?![A-Za-z])|\.[0-9]*\."
)


def same_tree(one: str, other: str) -> bool:
    """Whether two formulas in the spelling of `clean` differ only in the order of terms and factors.

    Raises Unreadable if math-verify's parser cannot read one of them, or would guess.
    """
    return bool(_tree(one) == _tree(other))


def _tree(latex: str):  # type: ignore[no-untyped-def]  # sympy, imported where it is needed, has no types
    from latex2sympy2_extended import latex2sympy
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig
    from sympy import Basic, Expr

    if guess := _GUESSED_AT.search(latex):
        raise Unreadable(f"{guess[0]!r} in {latex[:80]!r}")
    as_written = ConversionConfig(interpret_as_mixed_fractions=False, lowercase_symbols=False)

    def in_order(node: Basic) -> Basic:
        return node.func(*map(in_order, node.args)) if node.args else node

    try:
        tree = latex2sympy(latex, normalization_config=None, conversion_config=as_written)
    except Exception as error:  # the parser raises bare Exception, and its visitor others
        raise Unreadable(f"{' '.join(str(error).split())[:80]}, in {latex[:80]!r}") from error
    if not isinstance(tree, Expr):
        raise Unreadable(f"{latex[:80]!r} is not one value")
    return in_order(tree)


_NUM_POSITIVE = 4
_NUM_SIGNED = 8  # for three variables, every combination of signs
_DENOMINATOR = 997
_DIGITS = 20
_FARTHEST = 10**12
_WITH_CORNERS = frozenset(
    ("abs", "floor", "ceil", "root", "ln", "log", "arcsin", "arccos", "arctan", "arccot", "arcsec", "arccsc")
)


def points_for(*formulas: Formula) -> list[Point]:
    """Fixed rational points.

    The first lie between 1/2 and 2, with positive and then with all signs. |x - 9| and 9 - x agree on all of these, so
    formulas with such corners also get points of all signs beyond all of their numbers. Raises like `Evaluation`.
    """
    names = sorted(frozenset[str]().union(*(variables(formula) for formula in formulas)))
    source = random.Random(0)

    def point(scale: int, signs: int) -> Point:
        """`signs` has one bit for each of the first three variables; the signs of the others are arbitrary."""
        sizes = [scale * Fraction(source.randint(500, 2_000), _DENOMINATOR) for _ in names]
        bits = [signs >> place & 1 if place < 3 else source.randint(0, 1) for place in range(len(names))]
        return {name: -size if bit else size for name, size, bit in zip(names, sizes, bits, strict=True)}

    positive = [{name: abs(value) for name, value in point(1, 0).items()} for _ in range(_NUM_POSITIVE)]
    # The farthest corner; 0 if the formulas have none.
    reach = max((_distance(part) for formula in formulas for part in parts(formula) if _has_corner(part)), default=0)
    if reach > _FARTHEST:
        raise TooLarge("corners out of reach")
    scales = (1, 3 * reach) if reach else (1,)
    return positive + [point(scale, signs) for scale in scales for signs in range(_NUM_SIGNED)]


def _has_corner(formula: Formula) -> bool:
    if not isinstance(formula, Call) or not variables(formula):
        return False
    if formula.name == "^" and variables(formula.arguments[0]):
        exponent = exact_value(formula.arguments[1], {})
        return exponent is None or exponent.denominator != 1
    return formula.name in _WITH_CORNERS


def _distance(corner: Formula) -> int:
    """A bound on the distance of a corner from 0: |ln x - 5| has one at e^5."""
    assert isinstance(corner, Call)
    arguments = corner.arguments[:1] if corner.name == "^" else corner.arguments
    size = math.prod(map(_size, arguments))
    inside = [part for argument in arguments for part in parts(argument) if isinstance(part, Call) and variables(part)]
    return math.ceil(math.exp(min(size, 99))) if any(part.name in ("ln", "log") for part in inside) else size


def _size(formula: Formula) -> int:
    """The product of the numbers in a formula and of their denominators; a fixed exponent moves no corner far."""
    if variables(formula):
        arguments = formula.arguments if isinstance(formula, Call) else ()
        is_power = isinstance(formula, Call) and formula.name in ("^", "root") and not variables(formula.arguments[1])
        return math.prod(map(_size, arguments[:1] if is_power else arguments))
    value = exact_value(formula, {})
    if value is None:
        size = abs(Evaluation(formula, {}, _DIGITS).number)
        return int(mpmath.ceil(max(size, 1 / size))) if size else 1
    return max(abs(value.numerator), 1) * value.denominator
