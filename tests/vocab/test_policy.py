"""The policy's table, against the rules of the design applied to one id at a time."""

import math

import pytest
import torch

from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import ANSWERING, THINKING

V = 12
CONTROL = (3, 10, 11)
SOURCES = {
    "none": (),
    "some": (0, 1, 3, 5),
    "all": tuple(range(V)),
    "three copies": tuple(range(V)) * 3,
    "uneven": (1, 1, 1, 2, 3, 3, 10),
}


def make_layout(sources, mode="expand", preserve_odds=True):
    return VocabLayout(V, sources, 10, 11, (), CONTROL, mode, preserve_odds)


def rule(layout, region, token):
    """What DESIGN section 3 says about one id."""
    copies = {
        source: [V + k for k, copied in enumerate(layout.source_ids) if copied == source and source not in CONTROL]
        for source in range(V)
    }
    if token >= V + len(layout.source_ids):
        return -math.inf
    if token >= V:
        source = layout.source_ids[token - V]
        if region == ANSWERING or source in CONTROL:
            return -math.inf
        if not layout.preserve_odds:
            return 0.0
        return -math.log(len(copies[source]) + (layout.mode == "expand"))
    if region == ANSWERING or not copies[token]:
        return 0.0
    if layout.mode == "replace":
        return -math.inf
    return -math.log(1 + len(copies[token])) if layout.preserve_odds else 0.0


@pytest.mark.parametrize("preserve_odds", [True, False])
@pytest.mark.parametrize("mode", ["expand", "replace"])
@pytest.mark.parametrize("sources", SOURCES.values(), ids=SOURCES)
def test_every_entry_of_the_table_follows_the_rules(sources, mode, preserve_odds):
    layout = make_layout(sources, mode, preserve_odds)
    padding = 4
    bias = RegionPolicy(layout, rows=layout.rows + padding).bias
    assert bias.shape == (2, layout.rows + padding) and bias.dtype == torch.float32
    for region in (ANSWERING, THINKING):
        expected = [rule(layout, region, token) for token in range(layout.rows + padding)]
        assert bias[region].tolist() == pytest.approx(expected, abs=1e-6)


def test_values_of_ids_are_added_up_over_texts():
    policy = RegionPolicy(make_layout((4, 4, 9)), rows=16)
    values = torch.arange(32.0).view(2, 16)
    expected = values[:, :V].clone()
    expected[:, 4] += values[:, V] + values[:, V + 1]
    expected[:, 9] += values[:, V + 2]
    assert torch.equal(policy.over_texts(values), expected)
    assert policy.surface_ids(torch.tensor([[0, 11, 12], [13, 14, 3]])).tolist() == [[0, 11, 4], [4, 9, 3]]
