"""Figures of a batch that can be counted by hand."""

import pytest
import torch

from rlvr_vocab.training.metrics.batch import region_counts, region_entropies, region_metrics
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
