"""The bias as the vLLM plugin adds it before the temperature, held against the definition of the policy."""

from dataclasses import replace

import pytest
import torch

from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.vllm.batch_policy import LogitsBias

V = 400
FULL = VocabLayout(V, tuple(range(V)), 390, 391, (), (0, 1, 200, 390, 391))
LAYOUTS = {
    "full": FULL,
    "full, replacing": replace(FULL, mode="replace"),
    "full, odds not kept": replace(FULL, preserve_odds=False),
    "part": replace(FULL, source_ids=tuple(range(150))),
    "part, replacing": replace(FULL, source_ids=tuple(range(150)), mode="replace"),
    "several copies": replace(FULL, source_ids=tuple(k % V for k in range(900))),
    "several copies, replacing": replace(FULL, source_ids=tuple(k % V for k in range(900)), mode="replace"),
    "scattered": replace(FULL, source_ids=tuple(range(0, V, 7)) * 2),
}
TEMPERATURES = torch.tensor([0.0, 0.6, 1.0, 1.4, 1.0, 0.0, 0.01, 1.0])
REGIONS = torch.tensor([0, 1, 0, 1, 1, 1, 0, 0])


def logits(policy):
    return torch.randn(8, policy.bias.size(1), generator=torch.Generator().manual_seed(0)) * 5


def defined(policy):
    bias = policy.bias.double()[REGIONS]
    greedy = (TEMPERATURES == 0).unsqueeze(1)
    bias = torch.where(greedy & bias.isfinite(), 0.0, bias)
    temperatures = torch.where(TEMPERATURES == 0, 1.0, TEMPERATURES).double().unsqueeze(1)
    return (logits(policy).double() / temperatures + bias).log_softmax(1)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_divided_by_its_temperature_a_row_has_the_distribution_of_the_policy(layout):
    policy = RegionPolicy(layout, rows=layout.rows + 13)
    temperatures = torch.where(TEMPERATURES == 0, 1.0, TEMPERATURES).unsqueeze(1)
    added = logits(policy)
    LogitsBias(policy, torch.device("cpu")).add(added, REGIONS, TEMPERATURES)
    made, expected = (added / temperatures).log_softmax(1).double(), defined(policy)
    assert torch.equal(made.isinf(), expected.isinf())
    allowed = expected.isfinite()
    assert (made - expected)[allowed].abs().max() < 1e-3 and (made - expected)[2:6][allowed[2:6]].abs().max() < 1e-5


def test_a_row_in_no_region_stays_as_it_is():
    policy = RegionPolicy(FULL)
    added = logits(policy)
    LogitsBias(policy, torch.device("cpu")).add(added, torch.where(TEMPERATURES > 1, -1, REGIONS), TEMPERATURES)
    unchanged = (added == logits(policy)).all(1)
    assert unchanged.tolist() == (TEMPERATURES > 1).tolist()


def test_logits_of_another_width_are_refused():
    with pytest.raises(ValueError, match="describes 800 rows, vLLM's logits have 803"):
        LogitsBias(RegionPolicy(FULL), torch.device("cpu")).add(torch.zeros(1, 803), torch.zeros(1), torch.ones(1))
