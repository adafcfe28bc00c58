"""Regions by request slot, read from ids on a device, held against the definition on whole sequences."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import ANSWERING, regions_after
from rlvr_vocab.vocab.vllm.batch_policy import SlotRegions

LAYOUTS = {
    "turn of three": VocabLayout(20, tuple(range(20)), 3, 4, (5, 6, 7), (3, 4)),
    "no turn": VocabLayout(20, (), 3, 4, (), ()),
}
SLOTS, LONGEST = 5, 40


class Runner:
    """The part of vLLM's request state that a processor sees, with what the runner does to it."""

    def __init__(self):
        self.all_token_ids = SimpleNamespace(gpu=torch.zeros(SLOTS, LONGEST, dtype=torch.int32))
        self.total_len = SimpleNamespace(gpu=torch.zeros(SLOTS, dtype=torch.int32))
        self.prefill_len = SimpleNamespace(np=np.zeros(SLOTS, dtype=np.int32))
        self.device, self.max_num_reqs = torch.device("cpu"), SLOTS

    def enter(self, slot, ids):
        self.all_token_ids.gpu[slot, : len(ids)] = torch.tensor(ids, dtype=torch.int32)
        self.prefill_len.np[slot] = self.total_len.gpu[slot] = len(ids)

    def sampled(self, slot, token):
        self.all_token_ids.gpu[slot, self.total_len.gpu[slot]] = token
        self.total_len.gpu[slot] += 1

    def region(self, slot, layout):
        ids = self.all_token_ids.gpu[slot : slot + 1, : self.total_len.gpu[slot]]
        return int(regions_after(ids, layout)[0, -1]) if ids.numel() else ANSWERING


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("seed", range(5))
def test_slots_follow_their_requests_whichever_of_them_a_step_schedules(seed, layout):
    dice, runner = random.Random(seed), Runner()
    slots, running = SlotRegions(layout, runner), set()
    for _ in range(300):
        for slot in list(running):
            if runner.total_len.gpu[slot] == LONGEST or dice.random() < 0.05:
                running.remove(slot)
        for slot in range(SLOTS):
            if slot not in running and dice.random() < 0.3:
                runner.enter(slot, [dice.randrange(2, 9) for _ in range(dice.randrange(1, 20))])
                slots.add(slot, 1.0)
                running.add(slot)
        slots.refresh()
        found = {slot: int(slots.thinking_S[slot]) for slot in running}
        assert found == {slot: runner.region(slot, layout) for slot in running}
        for slot in running:
            if dice.random() < 0.7:
                runner.sampled(slot, dice.randrange(2, 9))


def test_what_a_slot_held_before_does_not_matter_to_the_next_request():
    runner = Runner()
    slots = SlotRegions(LAYOUTS["turn of three"], runner)
    runner.enter(2, [3, 9, 9, 5, 6])
    slots.add(2, 0.7)
    slots.refresh()
    assert slots.thinking_S[2] and slots.temperatures_S[2] == torch.tensor(0.7)
    runner.enter(2, [9])
    slots.add(2, 1e-6)
    slots.refresh()
    assert not slots.thinking_S[2] and slots.temperatures_S[2] == 0.0
