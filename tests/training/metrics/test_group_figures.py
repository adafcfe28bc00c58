"""How much the completions of a batch differ, on examples that can be counted by hand."""

import math
import statistics

import pytest
import torch

from rlvr_vocab.training.metrics.batch import duplicates, reward_spread, shared


def spread(rows, weights, group_size):
    return reward_spread(torch.tensor(rows), torch.tensor(weights), group_size)


def test_the_spread_is_the_mean_of_the_groups_own_standard_deviations():
    rewards, groups = [1.0, 0.0, 0.0, 5.0, 7.0, 9.0], ([1.0, 0.0, 0.0], [5.0, 7.0, 9.0])
    expected = statistics.mean(statistics.stdev(group) for group in groups)
    assert spread([[reward] for reward in rewards], [1.0], 3) == pytest.approx(expected)
    assert statistics.stdev(rewards) > 2 * expected  # which is what `reward_std` tells


def test_rewards_are_weighted_before_they_are_compared():
    rows = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]]
    assert spread(rows, [1.0, 1.0], 2) == pytest.approx(statistics.stdev([2.0, 0.0]) / 2)
    assert spread(rows, [1.0, -3.0], 2) == pytest.approx((statistics.stdev([1, -3]) + statistics.stdev([-2, 0])) / 2)
    assert spread(rows, [0.0, 0.0], 2) == 0


def test_what_has_no_reward_is_left_out_of_its_group():
    nan = math.nan
    rows = [[1.0, nan], [nan, 0.5], [nan, nan], [nan, nan], [nan, 4.0], [nan, nan]]
    assert spread(rows, [1.0, 2.0], 3) == 0  # 1 and 2 · 0.5; the second group has one reward alone
    assert spread(rows, [1.0, 4.0], 3) == pytest.approx(statistics.stdev([1.0, 2.0]))
    assert spread([[1.0], [nan]], [1.0], 2) is None


def test_duplicates_are_counted_within_their_group_after_the_first():
    assert duplicates(["a", "b", "c", "d"], 2) == 0
    assert duplicates(["a", "a", "a", "a"], 4) == 3 / 4
    assert duplicates(["a", "a", "b", "b", "a", "b"], 2) == 2 / 6  # the a and the b of the third group are their first
    assert duplicates(["a", "b", "a", "b"], 2) == 0


def test_a_text_is_shared_where_another_prompt_was_given_it_too():
    assert shared(["a", "a", "b", "c"], ["1", "1", "2", "2"]) == 0
    assert shared(["a", "b", "a", "c"], ["1", "1", "2", "2"]) == 2 / 4
    assert shared(["a", "a", "a", "b"], ["1", "1", "2", "2"]) == 3 / 4
    assert shared(["a", "b", "a", "b"], ["1", "1", "1", "1"]) == 0  # the same problem twice in a batch is no other
