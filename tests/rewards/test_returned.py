"""What a reward function returned is a list of finite numbers and None, or it is refused with what it was."""

import asyncio
import itertools
import math
from collections import UserList, deque
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch

from rlvr_vocab.rewards.returned import NotAScore, number_of, score_of, shown_value, values_of
from rlvr_vocab.rewards.reward import Score


async def later(result):
    return result


class Text(str):
    """A string by another name."""


@pytest.mark.parametrize(
    ("value", "score"),
    [
        (None, None),
        (1, 1.0),
        (True, 1.0),
        (-0.25, -0.25),
        (Fraction(1, 4), 0.25),
        (Decimal("0.125"), 0.125),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3.0),
        (np.bool_(True), 1.0),
        (np.array(2.5), 2.5),
        (torch.tensor(0.5, requires_grad=True), 0.5),
        (torch.tensor(0.5, dtype=torch.bfloat16), 0.5),
        (3e38, 3e38),
    ],
)
def test_finite_numbers_of_any_library_are_scores(value, score):
    assert number_of(value) == score
    assert score is None or type(number_of(value)) is float


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("1", "returned '1' (a str), not a number"),
        (Text("1"), "returned '1' (a Text), not a number"),
        (np.str_("1"), "returned '1' (a str), not a number"),
        ([1.0], "returned [1.0] (a list), not a number"),
        ({"score": 1}, "returned {'score': 1} (a dict), not a number"),
        (1 + 0j, "returned (1+0j) (a complex), not a number"),
        (np.array([1.0]), "returned array([1.]) (a ndarray), not a number"),
        (pd.NA, "returned <NA> (a NAType), not a number"),
        (math.nan, "returned nan"),
        (np.float64("nan"), "returned nan"),
        (Decimal("NaN"), "returned nan"),
        (math.inf, "returned inf"),
        (torch.tensor(-math.inf), "returned -inf"),
        (3.5e38, "returned 3.5e+38, which is infinite as float32"),
        (Decimal("sNaN"), "returned Decimal('sNaN') (a Decimal), which no float can hold"),
        (10**5000, "returned a number with thousands of digits (an int), which no float can hold"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_anything_else_is_refused_with_the_value_and_its_type(value, said):
    with pytest.raises(NotAScore) as caught:
        number_of(value)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    "result",
    [
        [1.0, 2.0],
        (1.0, 2.0),
        range(1, 3),
        deque([1.0, 2.0]),
        UserList([1.0, 2.0]),
        {"a": 1.0, "b": 2.0}.values(),
        (float(number) for number in (1, 2)),
        map(float, "12"),
        np.array([1.0, 2.0]),
        torch.tensor([1.0, 2.0], requires_grad=True),
        pd.Series([1.0, 2.0]),
    ],
    ids=lambda result: type(result).__name__,
)
def test_sequences_generators_arrays_and_tensors_are_lists(result):
    assert [float(value) for value in values_of(result, 2)] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (None, "returned None, not a list"),
        (1.0, "returned 1.0 (a float), not a list"),
        ("12", "returned '12' (a str), not a list"),
        (b"12", "returned b'12' (a bytes), not a list"),
        ({1.0, 2.0}, "returned {1.0, 2.0} (a set), not a list"),
        ({"a": 1.0, "b": 2.0}, "returned {'a': 1.0, 'b': 2.0} (a dict), not a list"),
        (np.float32(1), "returned np.float32(1.0) (a float32), not a list"),
        (np.ones((2, 1)), "returned array([[1.], [1.]]) (a ndarray) of shape (2, 1), not a list"),
        (torch.ones(1, 2), "returned tensor([[1., 1.]]) (a Tensor) of shape (1, 2), not a list"),
        ([1.0], "returned 1 value for 2 rows, none for row 2"),
        ([1.0] * 3, "returned 3 values for 2 rows"),
        (np.ones(3), "returned 3 values for 2 rows"),
        pytest.param(iter([1.0]), "returned 1 value for 2 rows, none for row 2", id="an iterator"),
        (itertools.repeat(1.0), "returned more than 2 values for 2 rows"),
    ],
    ids=str,
)
def test_what_is_no_list_of_the_batch_is_refused_with_what_it_is(result, said):
    with pytest.raises(NotAScore) as caught:
        values_of(result, 2)
    assert str(caught.value) == said


def test_what_is_awaited_is_waited_for_also_inside_a_running_loop():
    assert values_of(later([1.0, 2.0]), 2) == [1.0, 2.0]

    async def inside():
        return values_of(later([3.0]), 1)

    assert asyncio.run(inside()) == [3.0]


def test_scores_keep_their_reasons_and_are_checked_like_numbers():
    assert score_of(Score(np.float32(0.5), "half")) == Score(0.5, "half")
    assert score_of(0.5) == Score(0.5, "")
    with pytest.raises(NotAScore, match="returned nan"):
        score_of(Score(math.nan, "half"))


def test_a_value_is_shown_on_one_short_line():
    assert "\n" not in shown_value(pd.DataFrame({"a": range(100)}))
    assert len(shown_value("x" * 10**6)) < 100
