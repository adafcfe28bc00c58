"""Weights that follow success: computed by hand, window by window."""

import math

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.adaptive import Adaptation, AdaptiveWeight

NEVER, ALWAYS, HALF = [0.0, 0.0], [1.0, 1.0], [0.0, 1.0]


def weight(value=1.0, full_mark=1.0, **rule):
    return AdaptiveWeight(value, full_mark, Adaptation(**{"window": 1, **rule}))


def observed(adaptive, *batches):
    values = []
    for batch in batches:
        adaptive.observe(batch)
        values.append(adaptive.value)
    return values


def test_a_weight_rises_where_success_is_rare_and_falls_where_it_is_common():
    assert observed(weight(), NEVER, NEVER, HALF, ALWAYS) == pytest.approx([1.2, 1.44, 1.44, 1.296])
    assert observed(weight(9.0), NEVER, NEVER) == pytest.approx([10.0, 10.0])  # its bounds
    assert observed(weight(0.105), ALWAYS, ALWAYS) == pytest.approx([0.1, 0.1])


def test_the_thresholds_themselves_move_nothing():
    batches = [[1.0] * 3 + [0.0] * 7, [1.0] * 8 + [0.0] * 2]  # exactly 0.3 and 0.8
    assert observed(weight(), *batches) == [1.0, 1.0]


def test_a_weight_moves_once_a_window_by_the_mean_of_its_batches():
    # Rates 0, 1, 0 have the mean 1/3: nothing; then 0, 0, 1/2 have 1/6: up.
    assert observed(weight(window=3), NEVER, ALWAYS, NEVER) == [1.0, 1.0, 1.0]
    assert observed(weight(window=3), NEVER, NEVER, HALF, NEVER) == pytest.approx([1.0, 1.0, 1.2, 1.2])
    # Rows without a score say nothing, and neither does a batch of them.
    assert observed(weight(window=2), [None, 1.0], [None], ALWAYS) == pytest.approx([1.0, 1.0, 0.9])


def test_success_is_the_full_mark_of_the_function_or_more():
    assert observed(weight(full_mark=0.0), [0.0, 0.0]) == pytest.approx([0.9])  # a penalty: 0 is its best
    assert observed(weight(full_mark=2.0), [1.0, 1.0]) == pytest.approx([1.2])
    assert observed(weight(full_mark=0.3), [0.1 + 0.2 - 1e-9]) == pytest.approx([0.9])  # rounding apart


@pytest.mark.parametrize(
    "rule", [{"below": 0.9}, {"lower_by": 0.0}, {"least": 5.0, "most": 2.0}, {"below": math.nan}, {"most": 1_000_001.0}]
)
def test_an_impossible_rule_is_refused(rule):
    name, value = next(iter(rule.items()))
    with pytest.raises(UserError, match=f"{name}={value}"):
        Adaptation(**rule)


@pytest.mark.parametrize("value", [0.0, -1.0, 0.05, 11.0, math.nan])
def test_a_weight_outside_its_bounds_is_refused(value):
    with pytest.raises(UserError, match=rf"a weight of {value} does not lie between least=0.1 and most=10.0"):
        weight(value)
