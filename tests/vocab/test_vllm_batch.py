"""Regions of a vLLM batch and the bias on its logits, against the definition."""

import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import ANSWERING, THINKING, regions_after
from rlvr_vocab.vocab.truncation import Truncation
from rlvr_vocab.vocab.vllm_batch import UNKNOWN, LogitsBias, RequestRegion, SlotRegions

OPEN, CLOSE, TURN = 3, 4, (5, 6, 7)
LAYOUT = VocabLayout(20, tuple(range(20)), OPEN, CLOSE, TURN, (OPEN, CLOSE))
LAYOUTS = {
    "turn of three": LAYOUT,
    "no turn": VocabLayout(20, (), OPEN, CLOSE, (), ()),
    "turn that ends with a tag": VocabLayout(20, (), OPEN, CLOSE, (5, OPEN), ()),
}
SLOTS, LONGEST = 5, 40


def defined(ids, layout=LAYOUT):
    return int(regions_after(torch.tensor([ids]), layout)[0, -1]) if ids else ANSWERING


def test_unknown_tokens_are_refused_and_late_ones_count():
    output = [9]
    request = RequestRegion(LAYOUT, [OPEN], output, temperature=1.0)
    output.append(UNKNOWN)
    with pytest.raises(RuntimeError, match="no-async-scheduling"):
        request.region()
    output[-1] = CLOSE
    assert [request.region(), request.region()] == [ANSWERING, ANSWERING]
    output += [OPEN, 9]
    assert request.region() == THINKING


def test_tokens_that_vllm_takes_back_no_longer_count():
    output = [OPEN, 9, CLOSE, 9]
    request = RequestRegion(LAYOUT, [8], output, temperature=1.0)
    for kept, region in (([OPEN, 9, CLOSE, 9], ANSWERING), ([OPEN, 9], THINKING), ([9], ANSWERING)):
        output[:] = kept
        assert request.region() == region


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_request_is_in_the_region_of_its_prompt_and_output(layout):
    dice = random.Random(0)
    for temperature, recorded in ((1e-6, 0.0), (0.01, 0.01)):  # at 1e-6 vLLM is greedy
        prompt, output = [dice.randrange(2, 9) for _ in range(5)], [OPEN]
        request = RequestRegion(layout, prompt, output, temperature)
        assert request.temperature == recorded
        for _ in range(200):
            assert request.region() == defined(prompt + output, layout)
            output += [dice.randrange(2, 9) for _ in range(dice.randrange(3))]


class Runner:
    """The part of vLLM's request state that a processor sees, with the runner's changes of it."""

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
        return defined(self.all_token_ids.gpu[slot, : self.total_len.gpu[slot]].tolist(), layout)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("seed", range(3))
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
                slots.add(slot, 1e-6 if slot % 2 else 0.7)
                running.add(slot)
        slots.refresh()
        found = {slot: int(slots.thinking_S[slot]) for slot in running}
        assert found == {slot: runner.region(slot, layout) for slot in running}
        assert all(slots.temperatures_S[slot] == (0.0 if slot % 2 else torch.tensor(0.7)) for slot in running)
        for slot in running:
            if dice.random() < 0.7:
                runner.sampled(slot, dice.randrange(2, 9))


V = 400
FULL = VocabLayout(V, tuple(range(V)), 390, 391, (), (0, 1, 200, 390, 391))
BIASES = {
    "full": FULL,
    "full, odds not kept": replace(FULL, preserve_odds=False),
    "part, replacing": replace(FULL, source_ids=tuple(range(150)), mode="replace"),
    "several copies, replacing": replace(FULL, source_ids=tuple(k % V for k in range(900)), mode="replace"),
    "scattered": replace(FULL, source_ids=tuple(range(0, V, 7)) * 2),
}
TEMPERATURES = torch.tensor([0.0, 0.6, 1.0, 1.4, 1.0, 0.0, 0.01, 1.0])
REGIONS = torch.tensor([0, 1, 0, 1, 1, 1, 0, 0])


def logits_under(policy):
    return torch.randn(8, policy.bias.size(1), generator=torch.Generator().manual_seed(0)) * 5


@pytest.mark.parametrize("layout", BIASES.values(), ids=BIASES)
def test_divided_by_its_temperature_a_row_has_the_distribution_of_the_policy(layout):
    policy = RegionPolicy(layout, rows=layout.rows + 13)
    temperatures = torch.where(TEMPERATURES == 0, 1.0, TEMPERATURES).unsqueeze(1)
    bias = policy.bias.double()[REGIONS]
    bias = torch.where((TEMPERATURES == 0).unsqueeze(1) & bias.isfinite(), 0.0, bias)
    expected = (logits_under(policy).double() / temperatures.double() + bias).log_softmax(1)
    added = logits_under(policy)
    LogitsBias(policy, torch.device("cpu")).add(added, REGIONS, TEMPERATURES)
    made = (added / temperatures).log_softmax(1).double()
    assert torch.equal(made.isinf(), expected.isinf())
    allowed = expected.isfinite()
    assert (made - expected)[allowed].abs().max() < 1e-3 and (made - expected)[2:6][allowed[2:6]].abs().max() < 1e-5


@pytest.mark.parametrize("layout", BIASES.values(), ids=BIASES)
def test_a_truncation_leaves_the_ids_of_the_texts_that_it_keeps_in_its_rows_alone(layout):
    policy, bias = RegionPolicy(layout, rows=layout.rows + 13), None
    acts = {Truncation(top_k=5): REGIONS == 1, Truncation(top_p=0.4, min_p=0.1): torch.arange(8) == 2}
    texts = policy.surface_ids(torch.arange(layout.rows))
    temperatures = torch.where(TEMPERATURES == 0, 1.0, TEMPERATURES)
    added, bias = logits_under(policy), LogitsBias(policy, torch.device("cpu"))
    bias.add(added, REGIONS, temperatures)
    before = added.clone()
    bias.truncate(added, temperatures, acts)
    for row, (was, now) in enumerate(zip(before, added, strict=True)):
        q = (
            torch.zeros(V)
            .index_add(0, texts, (was / temperatures[row]).softmax(0)[: layout.rows])
            .sort(descending=True)
        )
        if row == 2:
            number = min(int((q.values.cumsum(0) < 0.4).sum()) + 1, int((q.values >= 0.1 * q.values[0]).sum()))
        else:
            number = 5 if REGIONS[row] else V
        kept = torch.isin(texts, q.indices[:number])
        assert (
            torch.equal(now[: layout.rows][kept], was[: layout.rows][kept]) and now[: layout.rows][~kept].isinf().all()
        )
    with pytest.raises(ValueError, match="text_topp is unknown: there are text_top_k, text_top_p, text_min_p"):
        Truncation.of_request({"text_topp": 0.5, "other": 1})


def test_slots_are_truncated_as_their_requests_ask_unless_greedy():
    runner, some, other = Runner(), Truncation(top_k=3), Truncation(top_p=0.5)
    slots = SlotRegions(LAYOUT, runner)
    for slot, temperature, truncation in ((0, 1.0, some), (1, 0.0, some), (2, 1.0, None), (3, 0.5, other)):
        runner.enter(slot, [8])
        slots.add(slot, temperature, truncation)
    slots.refresh()
    assert {each: acts.tolist() for each, acts in slots.truncated_S.items()} == {
        some: [True, False, False, False, False],
        other: [False, False, False, True, False],
    }
    slots.add(0, 1.0)
    slots.refresh()
    assert slots.truncated_S.keys() == {other}
    assert RequestRegion(LAYOUT, [8], [], 1e-6, some).truncation is None


def test_a_row_in_no_region_stays_as_it_is_and_logits_of_another_width_are_refused():
    policy = RegionPolicy(FULL)
    added, bias = logits_under(policy), LogitsBias(policy, torch.device("cpu"))
    bias.add(added, torch.where(TEMPERATURES > 1, -1, REGIONS), TEMPERATURES)
    assert (added == logits_under(policy)).all(1).tolist() == (TEMPERATURES > 1).tolist()
    with pytest.raises(RuntimeError, match=r"\(803\) must match .* \(800\)"):
        bias.add(torch.zeros(1, 803), torch.zeros(1, dtype=torch.long), torch.ones(1))
