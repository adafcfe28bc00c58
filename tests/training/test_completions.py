"""Rewards of a row add up over the functions that scored it."""

import math

import pytest

from rlvr_vocab.training.completions import CompletionRows


def test_a_function_that_passed_on_a_row_adds_nothing_to_it():
    rows = CompletionRows(
        prompt_ids=[[1]] * 3,
        completion_ids=[[2]] * 3,
        completion=["a", "b", "c"],
        solution=["1"] * 3,
        advantage=[0.0] * 3,
        rewards={"accuracy": [1.0, 0.0, math.nan], "format": [0.5, math.nan, math.nan]},
        weights={"accuracy": 2.0, "format": 0.1},
    )
    assert rows.total_rewards() == pytest.approx([2.05, 0.0, 0.0])
