"""The shipped tool: exact arithmetic on an expression of a model, in a process of its own."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from fractions import Fraction
from functools import cache

from rlvr_vocab.text import short_text
from rlvr_vocab.verify.worker_pool import WorkerPool

DEADLINE = 2.0  # seconds
LONGEST_EXPRESSION = 500
LARGEST_POWER = 10_000  # bits of the result
_SIGNS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "^": "**"})
_BINARY: dict[type, Callable[[Fraction, Fraction], Fraction | int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def calculator(expression: str) -> str:
    """Compute the value of an arithmetic expression.

    Args:
        expression: numbers with + - * / ** and parentheses, such as (2 + 3) * 4.
    """
    [outcome] = _pool().run([str(expression)], DEADLINE)
    if outcome.failure is not None:
        raise ValueError(outcome.detail.removeprefix("ValueError: "))
    return str(outcome.value)


@cache
def _pool() -> WorkerPool:
    return WorkerPool(f"{__name__}:value_of", workers=1)


def value_of(expression: str) -> str:
    """The value as text: a whole number, or twelve digits; ValueError for what is no arithmetic."""
    if len(expression) > LONGEST_EXPRESSION:
        raise ValueError(f"the expression is longer than {LONGEST_EXPRESSION} characters")
    try:
        tree = ast.parse(expression.translate(_SIGNS).strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ValueError(f"no arithmetic expression: {short_text(expression)}") from None
    try:
        value = _evaluate(tree.body)
        return str(value.numerator) if value.denominator == 1 else f"{float(value):.12g}"
    except ZeroDivisionError:
        raise ValueError("division by zero") from None
    except OverflowError:
        raise ValueError("the value is too large") from None


def _evaluate(node: ast.AST) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool) and math.isfinite(number):
            return Fraction(str(number))  # 0.1 is a tenth
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _evaluate(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_evaluate(left), _evaluate(right))
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _BINARY:
            return Fraction(_BINARY[type(sign)](_evaluate(left), _evaluate(right)))
    raise ValueError(f"cannot compute {short_text(ast.unparse(node))}")


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    bits = max(base.numerator.bit_length(), base.denominator.bit_length()) * abs(exponent)
    if bits > LARGEST_POWER:
        raise ValueError("the power is too large")
    power = base**exponent
    if isinstance(power, complex):
        raise ValueError("the root of a negative number")
    return Fraction(power)
