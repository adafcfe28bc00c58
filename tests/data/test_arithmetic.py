"""The generated sums and products are right, distinct and seeded."""

import re

import pytest

from rlvr_vocab.data.generators import ArithmeticTask, arithmetic_problems
from rlvr_vocab.errors import UserError
from rlvr_vocab.tools.calculator import value_of


def summands(problem):
    """The two numbers of a problem, read back from its text."""
    found = re.fullmatch(r"(\d+)\+(\d+)=", problem)
    assert found is not None
    return int(found[1]), int(found[2])


def sum_at_the_end_of(reasoning):
    """The sum that the working comes to: its last digits from right to left, the first step's last."""
    totals = [int(step.split("=")[1]) for step in reasoning.split(",")]
    return totals[-1] * 10 ** (len(totals) - 1) + sum(total % 10 * 10**i for i, total in enumerate(totals[:-1]))


def test_answer_and_working_are_the_sum_of_the_numbers_in_the_problem():
    for row in arithmetic_problems(ArithmeticTask(digits=3, num_problems=500), seed=1):
        assert int(row["answer"]) == sum(summands(row["problem"])) == sum_at_the_end_of(row["reasoning"])


@pytest.mark.parametrize(("digits", "num_problems"), [(1, 55), (2, 5050)])
def test_asking_for_all_pairs_gives_each_sum_once_in_one_of_its_two_orders(digits, num_problems):
    rows = arithmetic_problems(ArithmeticTask(digits, num_problems), seed=3)
    pairs = [summands(row["problem"]) for row in rows]
    every = [(a, b) for a in range(10**digits) for b in range(a, 10**digits)]
    assert sorted((min(pair), max(pair)) for pair in pairs) == every
    assert {a < b for a, b in pairs} == {True, False}


@pytest.mark.parametrize("shown", ["whole", "last_digit"])
def test_the_working_of_a_long_sum_has_every_sum_on_the_way(shown):
    rows = arithmetic_problems(ArithmeticTask(num_problems=200, terms=5, partial_sums=shown), seed=1)
    assert len({row["problem"] for row in rows}) == 200
    for row in rows:
        digits = [int(term) for term in row["problem"].removesuffix("=").split("+")]
        sums = [str(sum(digits[:count])) for count in range(2, 6)]
        assert len(digits) == 5 and max(digits) < 10 and row["answer"] == sums[-1]
        last = "".join(each[-1] for each in sums)
        assert row["reasoning"] == (",".join(sums) if shown == "whole" else last)


def test_so_many_products_are_worked_by_a_right_call_and_all_others_end_in_a_wrong_answer():
    rows = arithmetic_problems(ArithmeticTask(3, 2000, right_calls=0.25), seed=1)
    right = calls = refused = 0
    for row in rows:
        a, b = map(int, re.fullmatch(r"(\d{3})\*(\d{3})=", row["problem"]).groups())
        *before, last = row["reasoning"]
        right += last["content"] == f"\\boxed{{{a * b}}}"
        assert row["answer"] == str(a * b) and {a, b} <= set(range(100, 1000))
        if before:
            [call], result = before[0]["tool_calls"], before[1]["content"]
            calls += 1
            expression = call["function"]["arguments"]["expression"]
            if "x" in expression:
                refused += 1
                with pytest.raises(ValueError, match="no arithmetic expression") as error:
                    value_of(expression)
                assert str({"error": str(error.value)}) == result
            else:
                assert value_of(expression) == result and last["content"] == f"\\boxed{{{result}}}"
    assert 460 < right < 540 and 440 < refused < 560 and 1440 < calls < 1560
    assert arithmetic_problems(ArithmeticTask(3, 50, right_calls=1.0), seed=1)[49]["problem"] == rows[49]["problem"]


def test_a_long_sum_is_no_remainder_and_there_are_so_many():
    with pytest.raises(UserError, match="modulus asks for a remainder and terms asks for a sum"):
        ArithmeticTask(modulus=2, terms=3)
    with pytest.raises(UserError, match="terms asks for a sum and right_calls asks for a product"):
        ArithmeticTask(right_calls=0.5, terms=3)
    with pytest.raises(UserError, match="must be from 1 to 45"):  # of 1 to 9
        ArithmeticTask(1, 46, right_calls=0.5)
    with pytest.raises(UserError, match="with terms=3 it must be from 1 to 1000"):
        ArithmeticTask(terms=3, num_problems=1001)
    with pytest.raises(UserError, match="num_problems is 56; with digits=1 it must be from 1 to 55"):
        ArithmeticTask(digits=1, num_problems=56)
