"""The shipped calculator: exact, bounded, in a process of its own."""

import pytest

from rlvr_vocab.tools.calculator import calculator, value_of


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        *(("347 * 892", "309524"), ("2 + 3 * 4", "14"), ("(2+3)*4", "20"), ("7/2", "3.5"), ("6/3", "2")),
        *(("0.1 + 0.2", "0.3"), ("1/3", "0.333333333333"), ("2**-1", "0.5"), ("2^10", "1024"), ("-(2**3)", "-8")),
        *(("7 % 3", "1"), ("-7 // 2", "-4"), ("12 × 3 − 1", "35"), ("2**0.5", "1.41421356237"), ("+4", "4")),
        ("99999999999 * 99999999999", "9999999999800000000001"),
    ],
)
def test_arithmetic_is_exact(expression, value):
    assert value_of(expression) == value


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        *((each, "cannot compute") for each in ("__import__('os')", "x", "True", "'a'*9", "(1, 2)", "1e999", "1j")),
        *((each, "no arithmetic expression") for each in ("", "5!", "(" * 400, "\ud800", "\0", "3 4")),
        *((each, "too large") for each in ("9**9**9", "10**2000/7", "1" * 501, "2**" * 100 + "9")),
        *((each, "division by zero") for each in ("1/0", "0**-1", "5 % 0")),
        ("(-8)**(1/3)", "root of a negative number"),
    ],
)
def test_what_is_no_arithmetic_costs_the_call(expression, message):
    with pytest.raises(ValueError, match=message if len(expression) != 501 else "longer than 500"):
        value_of(expression)


def test_the_tool_computes_in_another_process():
    assert calculator("347 * 892") == "309524"
    with pytest.raises(ValueError, match=r"^division by zero$"):
        calculator("1/0")
