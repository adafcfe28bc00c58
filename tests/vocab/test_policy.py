"""The policy's table, against the rules of the design applied to one id at a time, and its blocks of texts."""

import math

import pytest
import torch

from rlvr_vocab.vocab import policy as module
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


@pytest.mark.parametrize("sources", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize("texts", [[0], [1, 4], list(range(V))], ids=str)
def test_the_ids_of_a_text_stand_in_as_many_columns_as_the_vocabulary_needs(texts, sources):
    ids, exists = RegionPolicy(make_layout(sources)).ids_of_texts(torch.tensor(texts)[:, None])
    assert ids.shape == (len(texts), 1 + max((sources.count(text) for text in range(V)), default=0))
    found = [row[there].tolist() for row, there in zip(ids, exists, strict=True)]
    assert found == [[text, *(V + k for k, source in enumerate(sources) if source == text)] for text in texts]


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


@pytest.mark.parametrize("mode", ["expand", "replace"])
@pytest.mark.parametrize("sources", SOURCES.values(), ids=SOURCES)
def test_odds_of_a_token_and_its_copies_add_up_to_one(sources, mode):
    policy = RegionPolicy(make_layout(sources, mode))
    surface = policy.surface_ids(torch.arange(policy.layout.rows))
    for region in (ANSWERING, THINKING):
        weight = torch.zeros(V).index_add_(0, surface, policy.bias[region].exp())
        assert torch.allclose(weight, torch.ones(V), atol=1e-6)


def test_values_of_ids_are_added_up_over_texts():
    policy = RegionPolicy(make_layout((4, 4, 9)), rows=16)
    values = torch.arange(32.0).view(2, 16)
    expected = values[:, :V].clone()
    expected[:, 4] += values[:, V] + values[:, V + 1]
    expected[:, 9] += values[:, V + 2]
    assert torch.equal(policy.over_texts(values), expected)


def test_surface_ids_put_the_source_in_place_of_each_copy():
    policy = RegionPolicy(make_layout((4, 4, 9)))
    assert policy.surface_ids(torch.tensor([[0, 11, 12], [13, 14, 3]])).tolist() == [[0, 11, 4], [4, 9, 3]]
    assert policy.is_reasoning(torch.tensor([11, 12, 14, 15])).tolist() == [False, True, True, False]
    baseline = RegionPolicy(make_layout(()))
    assert baseline.surface_ids(torch.tensor([0, 11])).tolist() == [0, 11]


# Of blocks of texts.
STANDARD, CPU = 300, torch.device("cpu")
OF_BLOCKS = {
    "none": (),
    "all": tuple(range(STANDARD)),
    "some, thrice": tuple(range(100)) * 3,
    "holes": (*range(30, 140), 5, 5, 5, 299, *range(200, 210), 7),
    "backwards": tuple(range(STANDARD - 1, -1, -1)),
}


def policy_of(sources, mode="expand"):
    return RegionPolicy(VocabLayout(STANDARD, sources, 290, 291, (), (7, 290, 291), mode))


@pytest.mark.parametrize("mode", ["expand", "replace"])
@pytest.mark.parametrize("sources", OF_BLOCKS.values(), ids=OF_BLOCKS)
@pytest.mark.parametrize("region", [ANSWERING, THINKING])
@pytest.mark.parametrize("size", [64, 97, 1000])
def test_every_open_id_is_in_the_block_of_its_text_once(sources, mode, region, size):
    policy = policy_of(sources, mode)
    allowed, texts = torch.isfinite(policy.bias[region]), policy.surface_ids(torch.arange(policy.layout.rows))
    seen = []
    for block in policy.text_blocks(region, size, CPU):
        assert block.groups
        for group in block.groups:
            ids = torch.arange(policy.layout.rows)[group.ids]
            assert torch.equal(torch.arange(block.texts.start, block.texts.stop)[group.texts], texts[ids])
            seen += ids[allowed[ids]].tolist()
    assert sorted(seen) == allowed.nonzero().squeeze(1).tolist()


@pytest.mark.parametrize("size", [1, 1000, 49_152, 151_646])
def test_blocks_of_qwen3_begin_at_multiples_of_128_whatever_the_number_of_copies(size):
    layout = VocabLayout(151_936, tuple(range(size)), 151_667, 151_668, (), (151_643, 151_667, 151_668))
    policy = RegionPolicy(layout)
    for blocks in (policy.text_blocks(region, 16_384, CPU) for region in (ANSWERING, THINKING)):
        assert {block.texts.start % 128 for block in blocks} == {0} and blocks[-1].texts.stop == 151_936
        widths = [group.width for block in blocks for group in block.groups[1:]]
        assert [width for width in widths if width % 128] in ([], [size % 128], widths[-1:])
        assert all(8_000 < block.size <= 16_384 for block in blocks[:-1])


def test_runs_of_copies_are_slices_and_others_are_looked_up():
    [block] = policy_of(OF_BLOCKS["holes"]).text_blocks(THINKING, 1000, CPU)
    standard, run, first, second, third = block.groups
    assert (standard.ids, standard.texts) == (slice(0, STANDARD), slice(0, STANDARD))
    assert (run.ids, run.texts) == (slice(STANDARD, STANDARD + 110), slice(30, 140))
    assert [group.texts.tolist() for group in (first, second, third)] == [[5, *range(200, 210), 299], [5], [5]]


@pytest.mark.parametrize(
    ("with_sources", "groups"), [(False, [(0, 1), (100, 1), (200, 1)]), (True, [(0, 1), (100, 2), (200, 1)])]
)
def test_standard_tokens_that_a_region_forbids_are_there_only_for_their_copies(with_sources, groups):
    policy = policy_of(tuple(range(100, 200)), "replace")
    blocks = policy.text_blocks(THINKING, 133, CPU, with_sources)  # with a third of a copy for each text
    assert [(block.texts.start, len(block.groups)) for block in blocks] == groups
    [copies] = blocks[1].groups[with_sources:]
    assert copies.ids == slice(STANDARD, STANDARD + 100)
    assert all(len(block.groups) == 1 for block in policy.text_blocks(ANSWERING, 100, CPU, with_sources))


@pytest.mark.parametrize("kind", ["run", "singles"])
def test_a_text_is_found_under_its_id(kind, monkeypatch):
    monkeypatch.setattr(module, "_SHORTEST_RUN", 4 if kind == "run" else 100)
    policy = RegionPolicy(VocabLayout(20, tuple(range(4, 12)), 18, 19, (), (18, 19)))
    [block] = policy.text_blocks(THINKING, 28, CPU)
    texts = torch.tensor([3, 4, 4, 11, 12, -5, 30])
    ids = torch.tensor([3, 20, 4, 27, 12, 0, 0])  # ids 20 … 27 copy 4 … 11
    column, inside, is_id = block.groups[1].find(ids, texts)
    assert inside.tolist() == [False, True, True, True, False, False, False]
    assert is_id.tolist() == [False, True, False, True, False, False, False]
    assert column[inside].tolist() == [0, 0, 7]
