"""Blocks of texts hold every id that a region allows once, with all ids of a text in one block."""

import pytest
import torch

from rlvr_vocab.vocab import text_blocks as module
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import ANSWERING, THINKING

STANDARD, CONTROL = 300, (7, 290, 291)
SOURCES = {
    "none": (),
    "all": tuple(range(STANDARD)),
    "some, thrice": tuple(range(100)) * 3,
    "holes": (*range(30, 140), 5, 5, 5, 299, *range(200, 210), 7),
    "backwards": tuple(range(STANDARD - 1, -1, -1)),
}


@pytest.mark.parametrize("mode", ["expand", "replace"])
@pytest.mark.parametrize("sources", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize("region", [ANSWERING, THINKING])
@pytest.mark.parametrize("size", [64, 97, 1000])
def test_every_open_id_is_in_the_block_of_its_text_once(sources, mode, region, size):
    policy = RegionPolicy(VocabLayout(STANDARD, sources, 290, 291, (), CONTROL, mode))
    allowed, texts = torch.isfinite(policy.bias[region]), policy.surface_ids(torch.arange(policy.layout.rows))
    seen = []
    for block in policy.text_blocks(region, size, torch.device("cpu")):
        pieces = [*([block.standard] if block.allows_standard else []), *block.copies]
        assert pieces
        for piece in pieces:
            ids = torch.arange(policy.layout.rows)[piece.ids]
            assert torch.equal(torch.arange(block.texts.start, block.texts.stop)[piece.texts], texts[ids])
            seen += ids[allowed[ids]].tolist()
    assert sorted(seen) == allowed.nonzero().squeeze(1).tolist()


@pytest.mark.parametrize("size", [1, 1000, 49_152, 151_646])
def test_blocks_of_qwen3_begin_at_multiples_of_128_whatever_the_number_of_copies(size):
    layout = VocabLayout(151_936, tuple(range(size)), 151_667, 151_668, (), (151_643, 151_667, 151_668))
    policy = RegionPolicy(layout)
    for blocks in (policy.text_blocks(region, 16_384, torch.device("cpu")) for region in (ANSWERING, THINKING)):
        assert {block.texts.start % 128 for block in blocks} == {0} and blocks[-1].texts.stop == 151_936
        widths = [piece.width for block in blocks for piece in block.copies]
        assert [width for width in widths if width % 128] in ([], [size % 128], widths[-1:])
        assert all(8_000 < block.texts.stop - block.texts.start <= 16_384 for block in blocks[:-1])


def test_runs_of_copies_are_slices_and_others_are_looked_up():
    policy = RegionPolicy(VocabLayout(STANDARD, SOURCES["holes"], 290, 291, (), CONTROL))
    [block] = policy.text_blocks(THINKING, 1000, torch.device("cpu"))
    run, first, second, third = block.copies
    assert (run.ids, run.texts) == (slice(STANDARD, STANDARD + 110), slice(30, 140))
    assert [piece.texts.tolist() for piece in (first, second, third)] == [[5, *range(200, 210), 299], [5], [5]]


def test_texts_that_a_region_forbids_are_in_no_block():
    policy = RegionPolicy(VocabLayout(STANDARD, tuple(range(100, 200)), 290, 291, (), CONTROL, "replace"))
    blocks = policy.text_blocks(THINKING, 133, torch.device("cpu"))  # with a third of a copy for each text
    assert [(block.texts.start, block.allows_standard, len(block.copies)) for block in blocks] == [
        (0, True, 0),
        (100, False, 1),
        (200, True, 0),
    ]
    assert not any(block.copies for block in policy.text_blocks(ANSWERING, 100, torch.device("cpu")))


@pytest.mark.parametrize("kind", ["run", "singles"])
def test_a_text_is_found_under_its_id(kind, monkeypatch):
    monkeypatch.setattr(module, "_SHORTEST_RUN", 4 if kind == "run" else 100)
    policy = RegionPolicy(VocabLayout(20, tuple(range(4, 12)), 18, 19, (), (18, 19)))
    [block] = policy.text_blocks(THINKING, 28, torch.device("cpu"))
    [piece] = block.copies
    texts = torch.tensor([3, 4, 4, 11, 12, -5, 30])
    ids = torch.tensor([3, 20, 4, 27, 12, 0, 0])  # ids 20 … 27 copy 4 … 11
    column, inside, is_id = piece.find(ids, texts)
    assert inside.tolist() == [False, True, True, True, False, False, False]
    assert is_id.tolist() == [False, True, False, True, False, False, False]
    assert column[inside].tolist() == [0, 0, 7]
