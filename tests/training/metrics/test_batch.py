"""The metrics of a batch, on examples that can be counted by hand."""

import math
from collections import defaultdict
from statistics import stdev
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator

from rlvr_vocab.training.metrics.batch import SamplingGap, StepMeans, duplicates, region_sums, reward_spread, shared
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy

NAN = math.nan
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


@pytest.mark.parametrize(
    ("rows", "weights", "group_size", "expected"),
    [
        ([[1.0], [0.0], [0.0], [5.0], [7.0], [9.0]], [1.0], 3, (stdev([1, 0, 0]) + stdev([5, 7, 9])) / 2),
        ([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]], [1.0, -3.0], 2, (stdev([1, -3]) + stdev([-2, 0])) / 2),
        # The second group has one reward alone.
        ([[1.0, NAN], [NAN, 0.5], [NAN, NAN], [NAN, NAN], [NAN, 4.0], [NAN, NAN]], [1.0, 4.0], 3, stdev([1.0, 2.0])),
        ([[1.0], [NAN]], [1.0], 2, None),
    ],
)
def test_the_spread_is_the_mean_of_the_groups_own_standard_deviations(rows, weights, group_size, expected):
    found = reward_spread(torch.tensor(rows), torch.tensor(weights), group_size)
    assert found == (None if expected is None else pytest.approx(expected))


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


def sums_of(prompts, completions, mask, policy=POLICY):
    sums = region_sums(torch.cat([prompts, completions], dim=1), mask, mask, policy)
    return {name: tuple(each.tolist()) for name, each in sums.items()}


def test_region_metrics_are_those_of_a_hand_counted_batch_and_of_nothing_after_its_end():
    garbage = torch.where(MASK.bool(), COMPLETIONS, torch.tensor(COPY + 3))
    for completions in (COMPLETIONS, garbage):
        assert sums_of(PROMPTS, completions, MASK) == {
            "thinking/mean_length": (12, 4),
            "answering/mean_length": (8, 4),
            "thinking/closed": (2, 4),
            "thinking/reasoning_share": (6, 12),
        }
    closed_by_the_last = sums_of(PROMPTS[[0, 0]], torch.tensor([[1, CLOSE], [1, 1]]), torch.ones(2, 2))
    assert closed_by_the_last["thinking/closed"] == (1, 2) and closed_by_the_last["thinking/mean_length"] == (4, 2)
    without_copies = RegionPolicy(VocabLayout(10, (), OPEN, CLOSE, (), (OPEN, CLOSE, END)))
    assert "thinking/reasoning_share" not in sums_of(PROMPTS, PROMPTS, torch.ones(4, 3), without_copies)


@pytest.fixture
def trainer():
    """A stub that counts steps and holds metrics."""
    return SimpleNamespace(
        present_metrics=defaultdict(list),
        state=SimpleNamespace(global_step=0),
        model=SimpleNamespace(training=True),
        accelerator=Accelerator(cpu=True),
    )


def test_batches_of_a_step_are_one_mean_over_their_tokens_and_steps_are_apart(trainer):
    metrics, means = trainer.present_metrics, StepMeans(trainer)

    def log(step, total, tokens):
        trainer.state.global_step = step
        means.log({"gap": torch.tensor([total, tokens])})

    for batch in ((0, 6.0, 2.0), (0, 2.0, 6.0), (1, 5.0, 1.0), (1, 0.0, 0.0), (2, 0.0, 0.0), (3, 8.0, 2.0)):
        log(*batch)
    assert metrics == {"gap": [1.0, 5.0, 4.0]}
    metrics.clear()  # a row that was logged is not gone on with
    log(3, 1.0, 2.0)
    assert metrics == {"gap": [0.5]}


def test_the_gap_is_over_tokens_of_completions_whose_sampled_log_probability_is_known(trainer):
    gap, inputs = SamplingGap(trainer), {"sampled_mask": torch.tensor([[1, 1, 1], [1, 0, 0]])}
    inputs["sampling_per_token_logps"] = torch.tensor([[-1.0, -2.0, NAN], [-3.0, -9.0, -9.0]])
    inputs["old_per_token_logps"] = torch.tensor([[-1.5, -1.0, -1.0], [-3.25, 0.0, 0.0]])
    gap.completions_drawn()
    with gap.measured(None, inputs):
        pass
    assert trainer.present_metrics["sampling/logp_gap"] == [(0.5 + 1.0 + 0.25) / 3]
