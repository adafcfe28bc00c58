"""The value of a formula: in exact rational arithmetic where that is enough, else to many digits.

What would become astronomical is refused before it does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath

from rlvr_vocab.verify.limits import MAX_BITS, TooLarge, Unreadable
from rlvr_vocab.verify.reading.numbers import power_of
from rlvr_vocab.verify.reading.parser import Call, Exact, Formula, Symbol

Point = Mapping[str, Fraction]

LARGEST_FACTORIAL = 1_000


class Undefined(ArithmeticError):
    """A formula without a value: a division by zero, the logarithm of 0."""


def exact_value(formula: Formula, point: Point) -> Fraction | None:
    """The value at a point, None where it takes more than rational arithmetic.

    Raises:
        Undefined: it has none there.
        TooLarge: a number on the way has more than `MAX_BITS` bits.
    """
    if isinstance(formula, Exact):
        return formula.value
    if isinstance(formula, Symbol):
        return point.get(formula.name)
    operation = _EXACT_OPERATIONS.get(formula.name)
    if operation is None:
        return None
    values = []
    for argument in formula.arguments:
        value = exact_value(argument, point)
        if value is None:
            return None
        values.append(value)
    return operation(values)


def _sum(terms: Sequence[Fraction]) -> Fraction:
    return _bounded(sum(terms, Fraction(0)))


def _product(factors: Sequence[Fraction]) -> Fraction:
    product = Fraction(1)
    for factor in factors:
        product = _bounded(product * factor)
    return product


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise TooLarge("a number of astronomical size")
    return value


def _inverse(values: Sequence[Fraction]) -> Fraction:
    if values[0] == 0:
        raise Undefined("a division by zero")
    return 1 / values[0]


def _exact_power(values: Sequence[Fraction]) -> Fraction | None:
    base, exponent = values
    if exponent.denominator != 1:
        return None
    if base == 0 and exponent <= 0:
        raise Undefined("0 to a power that is not positive")
    power = power_of(base, exponent.numerator)
    if power is None:
        raise TooLarge("a power of astronomical size")
    return power


def _exact_factorial(values: Sequence[Fraction]) -> Fraction | None:
    if values[0].denominator != 1 or values[0] < 0:
        return None
    if values[0] > LARGEST_FACTORIAL:
        raise TooLarge("the factorial of a large number")
    return Fraction(math.factorial(int(values[0])))


def _exact_binomial(values: Sequence[Fraction]) -> Fraction | None:
    if any(value.denominator != 1 or value < 0 for value in values):
        return None
    if values[0] > LARGEST_FACTORIAL:
        raise TooLarge("a binomial coefficient of large numbers")
    return Fraction(math.comb(int(values[0]), int(values[1])))


_EXACT_OPERATIONS: dict[str, Callable[[Sequence[Fraction]], Fraction | None]] = {
    "+": _sum,
    "*": _product,
    "neg": lambda values: -values[0],
    "inverse": _inverse,
    "^": _exact_power,
    "abs": lambda values: abs(values[0]),
    "floor": lambda values: Fraction(math.floor(values[0])),
    "ceil": lambda values: Fraction(math.ceil(values[0])),
    "factorial": _exact_factorial,
    "binom": _exact_binomial,
}


_LARGEST_DEGREE = 1_000
# Beyond this, sine and cosine need the argument to more digits than are computed.
_LARGEST_ARGUMENT = 10**30
# The base of a logarithm that does not name it, e to some and 10 to others: what holds for this one holds for all.
_SOME_BASE = 5.7193


@dataclass(frozen=True)
class Value:
    """A value to so many digits, with the largest and the smallest number that were met on the way to it.

    Sums count for the largest only: what is left of one may be nothing but rounding.
    """

    number: mpmath.mpc
    largest: mpmath.mpf
    smallest: mpmath.mpf


def approximate(formula: Formula, point: Point, digits: int) -> Value:
    """The value of a formula at a point.

    Raises:
        Undefined: it has none there.
        TooLarge: a number on the way has more than `MAX_BITS` bits.
        Unreadable: it holds something that is not evaluated here.
    """
    with mpmath.workdps(digits + 10):
        evaluation = _Evaluation(point, digits)
        return Value(evaluation.value(formula), evaluation.largest, evaluation.smallest)


def rounding(digits: int) -> mpmath.mpf:
    """What a number of so many digits may be off by, relative to the largest number on the way to it."""
    return mpmath.mpf(10) ** -(digits * 9 // 10)


class _Evaluation:
    def __init__(self, point: Point, digits: int) -> None:
        self.point = point
        self.largest = self.smallest = mpmath.mpf(1)
        self._rounding = rounding(digits)

    def value(self, formula: Formula) -> mpmath.mpc:
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
        if isinstance(formula, Call):
            arguments = [self.value(argument) for argument in formula.arguments]
            if formula.name == "^":
                return _power(arguments[0], arguments[1], exact_value(formula.arguments[1], {}))
            return _OPERATIONS[formula.name](self, *arguments)
        if formula.name in _CONSTANTS:
            return _CONSTANTS[formula.name]()
        value = self.point[formula.name]
        return mpmath.mpf(value.numerator) / value.denominator

    def sum(self, *terms: mpmath.mpc) -> mpmath.mpc:
        total = mpmath.fsum(terms)
        is_rounding = abs(total) <= self._rounding * max(map(abs, terms))
        return mpmath.mpc(0) if is_rounding else total  # or it would be divided by

    def whole_part(self, number: mpmath.mpc, round_down: Callable[[Any], Any]) -> mpmath.mpf:
        real = _real(number)
        nearest = mpmath.nint(real)
        return nearest if abs(real - nearest) <= self._rounding * abs(real) else round_down(real)

    def factorial(self, number: mpmath.mpc) -> mpmath.mpf:
        """Of a variable it is the gamma function, which obeys the same laws and has values between the integers."""
        real = _real(number)
        if abs(real) > LARGEST_FACTORIAL:
            raise TooLarge("the factorial of a large number")
        if not self.point and not mpmath.isint(real):
            raise Unreadable("the factorial of something that is not a whole number")
        return mpmath.factorial(real)

    def binomial(self, above: mpmath.mpc, below: mpmath.mpc) -> mpmath.mpf:
        if max(abs(above), abs(below)) > LARGEST_FACTORIAL:
            raise TooLarge("a binomial coefficient of large numbers")
        return mpmath.binomial(_real(above), _real(below))


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


def _root(_: _Evaluation, radicand: mpmath.mpc, degree: mpmath.mpc) -> mpmath.mpc:
    r"""`\sqrt[n]{x}`, which for odd n and negative x is the real one."""
    real = _real(degree)
    if not mpmath.isint(real) or not 2 <= real <= _LARGEST_DEGREE:
        raise Unreadable("a root whose degree is no number from 2 on")
    if int(real) % 2 and mpmath.im(radicand) == 0 and mpmath.re(radicand) < 0:
        return -mpmath.root(-radicand, int(real))
    return mpmath.root(radicand, int(real))


def _logarithm(_: _Evaluation, number: mpmath.mpc, base: mpmath.mpc | float = _SOME_BASE) -> mpmath.mpc:
    return mpmath.log(number) / mpmath.log(mpmath.mpc(base))


def _entire(function: Callable[[Any], Any]) -> Callable[[_Evaluation, mpmath.mpc], Any]:
    def applied(evaluation: _Evaluation, argument: mpmath.mpc) -> Any:
        if abs(argument) > _LARGEST_ARGUMENT:
            raise TooLarge(f"{function.__name__} of a huge number")
        # cos x differs from 1 by the square of a small x, and tanh x by so little of a large one.
        unseen = mpmath.exp(-2 * abs(mpmath.re(argument))) if function is mpmath.tanh else abs(argument) ** 2
        evaluation.smallest = min(evaluation.smallest, unseen or 1)
        return function(argument)

    return applied


def _real(value: mpmath.mpc) -> mpmath.mpf:
    if mpmath.im(value) != 0:
        raise Undefined("the order of complex numbers")
    return mpmath.re(value)


_CONSTANTS: dict[str, Callable[[], Any]] = {
    r"\pi": lambda: +mpmath.pi,
    "e": lambda: +mpmath.e,
    "i": lambda: mpmath.j,
}
_OPERATIONS: dict[str, Callable[..., Any]] = {
    "+": _Evaluation.sum,
    "*": lambda _, *factors: mpmath.fprod(factors),
    "neg": lambda _, number: -number,
    "inverse": lambda _, divisor: 1 / divisor,
    "root": _root,
    "ln": lambda _, number: mpmath.log(number),
    "log": _logarithm,
    "abs": lambda _, number: abs(number),
    "floor": lambda evaluation, number: evaluation.whole_part(number, mpmath.floor),
    "ceil": lambda evaluation, number: evaluation.whole_part(number, mpmath.ceil),
    "factorial": _Evaluation.factorial,
    "binom": _Evaluation.binomial,
    **{name: _entire(getattr(mpmath, name)) for name in ("sin", "cos", "tan", "cot", "sec", "csc")},
    **{name: _entire(getattr(mpmath, name)) for name in ("sinh", "cosh", "tanh")},
    **{f"arc{name}": _entire(getattr(mpmath, f"a{name}")) for name in ("sin", "cos", "tan", "cot", "sec", "csc")},
    **{f"arc{name}": _entire(getattr(mpmath, f"a{name}")) for name in ("sinh", "cosh", "tanh")},
}
