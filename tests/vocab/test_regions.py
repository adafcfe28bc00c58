"""Regions of random id sequences, against a walk through each prefix in plain Python."""

import random

import pytest
import torch

from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import (
    ANSWERING,
    THINKING,
    RegionTracker,
    after_last_ids,
    region_of_next,
    regions_after,
    scored_regions,
)

OPEN, CLOSE, PAD = 7, 8, 0
TURN = (5, 6, 5)


def make_layout(turn_ids=TURN):
    return VocabLayout(10, (1, 2, 3), OPEN, CLOSE, tuple(turn_ids), (OPEN, CLOSE))


def walk(prefix, layout):
    """The definition, read aloud: the last tag since the assistant's turn began, if it is an opening one."""
    turn, start = list(layout.turn_ids), 0
    for end in range(len(prefix), 0, -1):
        if turn and prefix[max(0, end - len(turn)) : end] == turn:
            start = end
            break
    tags = [token for token in prefix[start:] if token in (OPEN, CLOSE)]
    return THINKING if tags and tags[-1] == OPEN else ANSWERING


@pytest.mark.parametrize("turn_ids", [(), (9,), TURN, (5, 5)])
def test_regions_of_random_sequences_equal_a_walk_through_each_prefix(turn_ids):
    layout, rng = make_layout(turn_ids), random.Random(0)
    pieces = [[OPEN], [CLOSE], [1], [2, 12], [5], [6], list(turn_ids) or [9], [OPEN, 3, CLOSE, OPEN]]
    for _ in range(60):
        ids = [PAD] * rng.randrange(4) + [token for _ in range(14) for token in rng.choice(pieces)]
        expected = [walk(ids[: end + 1], layout) for end in range(len(ids))]
        assert regions_after(torch.tensor([ids]), layout)[0].tolist() == expected
        assert scored_regions(torch.tensor([ids]), layout)[0].tolist() == [ANSWERING, *expected[:-1]]
        prefixes = [ids[: end + 1] for end in range(len(ids))]
        assert [RegionTracker(layout, prefix).region for prefix in prefixes] == expected
        assert [region_of_next(torch.tensor([prefix]), layout).item() for prefix in prefixes] == expected
        thinking, followed = torch.tensor([False]), []
        for end in range(len(ids)):
            thinking = after_last_ids(thinking, torch.tensor([ids]), torch.tensor([end + 1]), layout)
            followed.append(int(thinking))
        assert followed == expected


def test_a_turn_longer_than_the_sequence_is_no_event():
    assert regions_after(torch.tensor([[OPEN, 1]]), make_layout((1, 2, 3)))[0].tolist() == [1, 1]
    ids, layout = torch.tensor([[5, OPEN]]), make_layout((5, 5, OPEN))
    assert after_last_ids(torch.tensor([False]), ids, torch.tensor([2]), layout).tolist() == [True]
    whole = torch.tensor([TURN])  # a turn that fills the sequence is one
    assert after_last_ids(torch.tensor([True]), whole, torch.tensor([3]), make_layout()).tolist() == [False]
