"""Regions of a vLLM batch, followed token by token, held against the definition on whole sequences."""

import random

import pytest
import torch

from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import ANSWERING, THINKING, regions_after
from rlvr_vocab.vocab.vllm.batch_policy import UNKNOWN, BatchRegions, RequestRegion

OPEN, CLOSE, TURN = 3, 4, (5, 6, 7)
LAYOUT = VocabLayout(20, tuple(range(20)), OPEN, CLOSE, TURN, (OPEN, CLOSE))
LAYOUTS = {
    "turn of three": LAYOUT,
    "turn of one": VocabLayout(20, (), OPEN, CLOSE, (5,), ()),
    "no turn": VocabLayout(20, (), OPEN, CLOSE, (), ()),
    "turn that ends with a tag": VocabLayout(20, (), OPEN, CLOSE, (5, OPEN), ()),
}


def defined(ids, layout=LAYOUT):
    return int(regions_after(torch.tensor([ids]), layout)[0, -1]) if ids else ANSWERING


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_region_grown_token_by_token_is_that_of_the_whole_sequence(layout):
    dice = random.Random(0)
    for _ in range(100):
        prompt = [dice.randrange(2, 9) for _ in range(dice.randrange(12))]
        output = [dice.randrange(2, 9) for _ in range(dice.randrange(4))]
        request = RequestRegion(layout, prompt, output, temperature=1.0)
        for _ in range(20):
            assert request.region() == defined(prompt + output, layout)
            output.append(dice.randrange(2, 9))
            request.advance()


def test_a_token_that_becomes_known_after_the_update_counts_at_once():
    output = [9]
    request = RequestRegion(LAYOUT, [OPEN], output, temperature=1.0)
    output.append(UNKNOWN)
    request.advance()
    with pytest.raises(RuntimeError, match="no-async-scheduling"):
        request.region()
    output[-1] = CLOSE
    assert [request.region(), request.region()] == [ANSWERING, ANSWERING]
    output += [OPEN, UNKNOWN]
    request.advance()
    output[-1] = 9
    assert request.region() == THINKING


def test_tokens_that_vllm_takes_back_no_longer_count():
    output = [OPEN, 9, CLOSE, 9]
    request = RequestRegion(LAYOUT, [8], output, temperature=1.0)
    assert request.region() == ANSWERING
    del output[2:]
    request.advance()
    assert request.region() == THINKING
    output[:] = [9]
    request.advance()
    assert request.region() == ANSWERING


@pytest.mark.parametrize(("given", "kept"), [(0.0, 0.0), (1e-6, 0.0), (0.01, 0.01), (1.0, 1.0)])
def test_a_temperature_at_which_vllm_is_greedy_counts_as_zero(given, kept):
    assert RequestRegion(LAYOUT, [], [], given).temperature == kept


class Batch:
    """What vLLM does to its rows, done to plain lists: the sequences that every row should hold."""

    def __init__(self, seed):
        self.dice, self.rows, self.regions = random.Random(seed), {}, BatchRegions(LAYOUT)

    def step(self):
        dice, rows = self.dice, self.rows
        removed = [row for row in rows if dice.random() < 0.1]
        for row in removed:
            del rows[row]
        added = []
        for row in range(8):
            if row not in rows and dice.random() < 0.4:  # some resumed with output that they already had
                prompt = [dice.randrange(2, 9) for _ in range(dice.randrange(1, 10))]
                output = [dice.randrange(2, 9) for _ in range(dice.randrange(3))]
                rows[row] = (prompt, output, dice.choice([0.0, 1.0]))
                added.append((row, rows[row][2], prompt, output))
        moved = []
        if rows and dice.random() < 0.5:
            source, target, swap = dice.choice(list(rows)), dice.randrange(8), dice.random() < 0.5
            if source != target:
                first, second = rows.pop(source), rows.pop(target, None)
                rows[target] = first
                if swap and second is not None:
                    rows[source] = second
                moved.append((source, target, swap))
        self.regions.update(removed, added, moved)
        self.regions.advance()

    def sample(self):
        for _, output, _ in self.rows.values():
            output.append(self.dice.randrange(2, 9))


@pytest.mark.parametrize("seed", range(5))
def test_rows_keep_their_own_region_through_additions_removals_moves_and_swaps(seed):
    batch = Batch(seed)
    for _ in range(200):
        batch.step()
        expected = {
            row: (defined(prompt + output), temperature) for row, (prompt, output, temperature) in batch.rows.items()
        }
        assert batch.regions.rows() == expected
        batch.sample()
