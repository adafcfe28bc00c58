"""The generated sums are right, distinct and seeded."""

import re

import pytest

from rlvr_vocab.data.generators import ArithmeticTask, arithmetic_problems
from rlvr_vocab.errors import UserError


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


def test_a_long_sum_is_no_remainder_and_there_are_so_many():
    with pytest.raises(UserError, match="modulus asks for a remainder and terms for a sum"):
        ArithmeticTask(modulus=2, terms=3)
    with pytest.raises(UserError, match="with terms=3 it must be from 1 to 1000"):
        ArithmeticTask(terms=3, num_problems=1001)
    with pytest.raises(UserError, match="num_problems is 56; with digits=1 it must be from 1 to 55"):
        ArithmeticTask(digits=1, num_problems=56)
