"""The value of a formula: in exact rational arithmetic where that is enough, else to many digits.

Numbers of astronomical size are refused before they are computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import mpmath

from rlvr_vocab.verify.reading.parser import WITH_INVERSE, Call, Exact, Formula, Symbol
from rlvr_vocab.verify.reading.quantities import power_of
from rlvr_vocab.verify.reading.scanning import MAX_BITS, TooLarge, Unreadable

Point = Mapping[str, Fraction]

_LARGEST_FACTORIAL = 1_000
_LARGEST_DEGREE = 1_000
# Beyond this, sine and cosine need the argument to more digits than are computed.
_LARGEST_ARGUMENT = 10**30
# The base of a logarithm that does not name it, e to some and 10 to others: what holds for this one holds for all.
_SOME_BASE = 5.7193


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
    return operation(*values)


def _exact_product(*factors: Fraction) -> Fraction:
    product = Fraction(1)
    for factor in factors:
        product = _bounded(product * factor)
    return product


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise TooLarge("a number of astronomical size")
    return value


def _exact_inverse(value: Fraction) -> Fraction:
    if value == 0:
        raise Undefined("a division by zero")
    return 1 / value


def _exact_power(base: Fraction, exponent: Fraction) -> Fraction | None:
    if exponent.denominator != 1:
        return None
    if base == 0 and exponent <= 0:
        raise Undefined("0 to a power that is not positive")
    power = power_of(base, exponent.numerator)
    if power is None:
        raise TooLarge("a power of astronomical size")
    return power


def _count(function: Callable[..., int], name: str) -> Callable[..., Fraction | None]:
    def counted(*values: Fraction) -> Fraction | None:
        if any(value.denominator != 1 or value < 0 for value in values):
            return None
        if values[0] > _LARGEST_FACTORIAL:
            raise TooLarge(name)
        return Fraction(function(*map(int, values)))

    return counted


_EXACT_OPERATIONS: dict[str, Callable[..., Fraction | None]] = {
    "+": lambda *terms: _bounded(sum(terms, Fraction(0))),
    "*": _exact_product,
    "neg": lambda value: -value,
    "inverse": _exact_inverse,
    "^": _exact_power,
    "abs": abs,
    "floor": lambda value: Fraction(math.floor(value)),
    "ceil": lambda value: Fraction(math.ceil(value)),
    "factorial": _count(math.factorial, "the factorial of a large number"),
    "binom": _count(math.comb, "a binomial coefficient of large numbers"),
}


def rounding(digits: int) -> mpmath.mpf:
    """The error of a number of so many digits, relative to the largest number on the way to it."""
    return mpmath.mpf(10) ** -(digits * 9 // 10)


class Evaluation:
    """The `number` that a formula is at a point, with the largest and the smallest number on the way to it.

    Sums count for the largest only: what is left of one may be nothing but rounding.

    Raises:
        Undefined: it has no value there.
        TooLarge: a number on the way has more than `MAX_BITS` bits.
        Unreadable: it holds something that is not evaluated here.
    """

    def __init__(self, formula: Formula, point: Point, digits: int) -> None:
        with mpmath.workdps(digits + 10):
            self.point, self._rounding = point, rounding(digits)
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
        if isinstance(formula, Call):
            arguments = [self._value(argument) for argument in formula.arguments]
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
        if abs(real) > _LARGEST_FACTORIAL:
            raise TooLarge("the factorial of a large number")
        if not self.point and not mpmath.isint(real):
            raise Unreadable("the factorial of something that is not a whole number")
        return mpmath.factorial(real)


def _binomial(_: Evaluation, above: mpmath.mpc, below: mpmath.mpc) -> mpmath.mpf:
    if max(abs(above), abs(below)) > _LARGEST_FACTORIAL:
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


def _root(_: Evaluation, radicand: mpmath.mpc, degree: mpmath.mpc) -> mpmath.mpc:
    r"""`\sqrt[n]{x}`, which for odd n and negative x is the real one."""
    real = _real(degree)
    if not mpmath.isint(real) or not 2 <= real <= _LARGEST_DEGREE:
        raise Unreadable("a root whose degree is no number from 2 on")
    if int(real) % 2 and mpmath.im(radicand) == 0 and mpmath.re(radicand) < 0:
        return -mpmath.root(-radicand, int(real))
    return mpmath.root(radicand, int(real))


def _logarithm(_: Evaluation, number: mpmath.mpc, base: mpmath.mpc | float = _SOME_BASE) -> mpmath.mpc:
    return mpmath.log(number) / mpmath.log(mpmath.mpc(base))


def _entire(function: Callable[[Any], Any]) -> Callable[[Evaluation, mpmath.mpc], Any]:
    def applied(evaluation: Evaluation, argument: mpmath.mpc) -> Any:
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
    "+": Evaluation.sum,
    "*": lambda _, *factors: mpmath.fprod(factors),
    "neg": lambda _, number: -number,
    "inverse": lambda _, divisor: 1 / divisor,
    "root": _root,
    "ln": lambda _, number: mpmath.log(number),
    "log": _logarithm,
    "abs": lambda _, number: abs(number),
    "floor": lambda evaluation, number: evaluation.whole_part(number, mpmath.floor),
    "ceil": lambda evaluation, number: evaluation.whole_part(number, mpmath.ceil),
    "factorial": Evaluation.factorial,
    "binom": _binomial,
    **{f"{arc}{name}": _entire(getattr(mpmath, f"{arc[:1]}{name}")) for name in WITH_INVERSE for arc in ("", "arc")},
}
