"""The value of a formula in exact rational arithmetic, where that is enough: polynomials, quotients, whole powers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from rlvr_vocab.verify.limits import MAX_BITS, TooLarge
from rlvr_vocab.verify.reading.formula import Exact, Formula, Symbol
from rlvr_vocab.verify.reading.numbers import power_of

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
    operation = _OPERATIONS.get(formula.name)
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


def _power(values: Sequence[Fraction]) -> Fraction | None:
    base, exponent = values
    if exponent.denominator != 1:
        return None
    if base == 0 and exponent <= 0:
        raise Undefined("0 to a power that is not positive")
    power = power_of(base, exponent.numerator)
    if power is None:
        raise TooLarge("a power of astronomical size")
    return power


def _factorial(values: Sequence[Fraction]) -> Fraction | None:
    if values[0].denominator != 1 or values[0] < 0:
        return None
    if values[0] > LARGEST_FACTORIAL:
        raise TooLarge("the factorial of a large number")
    return Fraction(math.factorial(int(values[0])))


def _binomial(values: Sequence[Fraction]) -> Fraction | None:
    if any(value.denominator != 1 or value < 0 for value in values):
        return None
    if values[0] > LARGEST_FACTORIAL:
        raise TooLarge("a binomial coefficient of large numbers")
    return Fraction(math.comb(int(values[0]), int(values[1])))


_OPERATIONS: dict[str, Callable[[Sequence[Fraction]], Fraction | None]] = {
    "+": _sum,
    "*": _product,
    "neg": lambda values: -values[0],
    "inverse": _inverse,
    "^": _power,
    "abs": lambda values: abs(values[0]),
    "floor": lambda values: Fraction(math.floor(values[0])),
    "ceil": lambda values: Fraction(math.ceil(values[0])),
    "factorial": _factorial,
    "binom": _binomial,
}
