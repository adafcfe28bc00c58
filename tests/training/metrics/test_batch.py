"""The metrics of a batch, on examples that can be counted by hand."""

import math
import statistics
from collections import defaultdict

import pytest
import torch

from rlvr_vocab.training.metrics.batch import (
    StepMeans,
    duplicates,
    region_counts,
    region_entropies,
    region_metrics,
    reward_spread,
    shared,
)
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy

OPEN, CLOSE, END, PAD = 7, 8, 9, 0
COPY = 10  # of token 0; ids 10 … 14 are reasoning tokens
POLICY = RegionPolicy(VocabLayout(10, (0, 1, 2, 3, 4), OPEN, CLOSE, (), (OPEN, CLOSE, END)))
PROMPTS = torch.tensor([[PAD, 1, OPEN], [1, 2, 3], [1, 2, 3], [1, 2, OPEN]])
COMPLETIONS = torch.tensor(
    [
        [COPY, 1, COPY + 1, CLOSE, 2, END],  # 4 thinking, 2 of them copies, closed, 2 answering
        [OPEN, COPY, CLOSE, 5, END, PAD],  # opening counts as answering: 3 answering, 2 thinking, closed
        [1, 2, END, PAD, PAD, PAD],  # 3 answering, nothing thought
        [1, COPY, COPY, COPY, 1, 1],  # 6 thinking, never closed
    ]
)
MASK = torch.tensor([[1] * 6, [1] * 5 + [0], [1] * 3 + [0] * 3, [1] * 6])


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


def test_counts_are_those_of_a_hand_counted_batch():
    assert region_counts(PROMPTS, COMPLETIONS, MASK, POLICY).tolist() == [4, 12, 8, 6, 2]


def test_a_closing_tag_as_the_last_id_closes_the_thinking():
    counts = region_counts(PROMPTS[[0, 0]], torch.tensor([[1, CLOSE], [1, 1]]), torch.ones(2, 2), POLICY)
    assert counts.tolist() == [2, 4, 0, 0, 1]


def test_figures_follow_from_counts():
    assert region_metrics(torch.tensor([4.0, 12.0, 8.0, 6.0, 2.0]), copies=True) == {
        "thinking/mean_length": 3.0,
        "answering/mean_length": 2.0,
        "thinking/closed": 0.5,
        "thinking/reasoning_share": 0.5,
    }
    nothing_thought, no_copies = torch.tensor([4.0, 0.0, 8.0, 0.0, 0.0]), torch.tensor([4.0, 12.0, 8.0, 0.0, 2.0])
    assert "thinking/reasoning_share" not in region_metrics(nothing_thought, copies=True)
    assert "thinking/reasoning_share" not in region_metrics(no_copies, copies=False)


def test_what_follows_the_end_of_a_completion_counts_nowhere():
    garbage = torch.where(MASK.bool(), COMPLETIONS, torch.tensor(COPY + 3))
    assert region_counts(PROMPTS, garbage, MASK, POLICY).tolist() == [4, 12, 8, 6, 2]


def test_entropies_are_summed_by_region():
    entropies = torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]])
    regions, mask = torch.tensor([[0, 1, 1], [1, 0, 0]]), torch.tensor([[1, 1, 1], [1, 1, 0]])
    sums = region_entropies(entropies, regions, mask)
    assert sums.dtype == torch.float64
    assert sums.flatten().tolist() == pytest.approx([17.0, 2, 14.0, 3])


def test_batches_of_a_step_are_one_mean_over_their_tokens_and_steps_are_apart():
    means, metrics = StepMeans(), defaultdict(list)
    for step, total, tokens in ((0, 6.0, 2), (0, 2.0, 6), (1, 5.0, 1), (1, 0.0, 0), (2, 0.0, 0), (3, 8.0, 2)):
        means.log("gap", torch.tensor([total, tokens]), step, metrics)
    assert metrics == {"gap": [1.0, 5.0, 4.0]}


def test_a_row_that_was_logged_is_not_gone_on_with():
    means, metrics = StepMeans(), defaultdict(list)
    means.log("gap", torch.tensor([6.0, 2]), 0, metrics)
    metrics.clear()
    means.log("gap", torch.tensor([1.0, 2]), 0, metrics)
    assert metrics == {"gap": [0.5]}
