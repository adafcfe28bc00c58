"""Lengths of prompts: quantiles are those of the sorted list, and the suggested limit keeps 99 % of the prompts."""

import random
from collections import Counter

import pytest

from rlvr_vocab.commands.check.facts import length_facts, quantile


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 0.99, 1.0])
def test_a_quantile_is_the_first_length_that_enough_do_not_exceed(share: float) -> None:
    lengths = sorted(random.Random(1).randint(10, 60) for _ in range(200))
    expected = next(length for length in lengths if sum(other <= length for other in lengths) >= share * 200)
    assert quantile(Counter(lengths), share) == expected


@pytest.mark.parametrize(
    ("lengths", "limit", "left_out"),
    [
        ([10], 64, 0),
        ([64] * 5, 64, 0),
        ([65] * 5, 128, 0),
        ([50] * 99 + [500], 64, 1),  # 99 % are kept
        ([50] * 98 + [100, 500], 128, 1),  # 98 % would not do
    ],
)
def test_the_suggested_limit_is_the_smallest_multiple_of_64_that_keeps_99_percent(
    lengths: list[int], limit: int, left_out: int
) -> None:
    facts = length_facts(lengths)
    assert (facts.suggested_limit, facts.left_out) == (limit, left_out)
    assert (facts.shortest, facts.longest) == (min(lengths), max(lengths))
