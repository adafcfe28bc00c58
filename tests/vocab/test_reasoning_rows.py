"""Copies that are held as differences from their sources, beside the stock tables that make and keep them."""

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.copied_rows import DIFFERENCES, attach_low_rank_rows, copied_rows_of
from rlvr_vocab.vocab.head import attach_region_head
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import scored_regions

RANKS = (4, 0)
SHAPES = [  # scaled and capped; with a bias; tied; untied
    "gemma3",
    "phi",
    pytest.param("qwen3", marks=pytest.mark.slow),
    pytest.param("gpt2_untied", marks=pytest.mark.slow),
]
SOURCES = (*range(20, 90), 5, 9, 9, 300, *range(100, 120), 9)
NOISE = 0.1


def stock(folder):
    return AutoModelForCausalLM.from_pretrained(folder).eval()


def held(folder):
    model = stock(folder)
    attach_low_rank_rows(model, folder)
    return model


@torch.no_grad()
def change(model):
    """Values of the tables and of all that copies differ by which no folder has."""
    generator = torch.Generator().manual_seed(3)
    for name, parameter in model.named_parameters():
        if parameter.size(0) == copied_rows_of(model).layout.standard_size or "difference" in name:
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)


def contexts(layout):
    return torch.randint(0, layout.rows, (3, 12), generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def farthest(one, other, layout):
    ids = contexts(layout)
    return (one(input_ids=ids).logits - other(input_ids=ids).logits).abs().max().item()


def continuations(model, layout):
    return model.generate(contexts(layout)[:1], do_sample=False, max_new_tokens=12, eos_token_id=-1)


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("name", SHAPES)
def test_a_held_model_is_the_stock_model_of_its_folder_before_and_after_it_has_changed(
    name, rank, expand_shape, tmp_path
):
    folder = expand_shape(name, source_ids=SOURCES, reasoning_rank=rank, init_noise=NOISE if rank else 0.0)
    layout, model = VocabLayout.load(folder), held(folder)
    assert len(model.get_output_embeddings().weight) == len(model.get_input_embeddings().weight) == layout.standard_size
    assert farthest(model, stock(folder), layout) < 1e-5
    assert torch.equal(continuations(model, layout), continuations(stock(folder), layout))
    change(model)
    assert farthest(model, stock(folder), layout) > 0.1
    named = dict(copied_rows_of(model).stock_parameters(model.named_parameters()))
    model.save_pretrained(tmp_path)
    saved = stock(tmp_path)
    assert farthest(model, saved, layout) < 1e-5
    assert torch.equal(continuations(model, layout), continuations(saved, layout))
    assert named.keys() == dict(saved.named_parameters()).keys() == dict(stock(folder).named_parameters()).keys()
    assert all(torch.equal(named[key], each) for key, each in saved.named_parameters())


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("name", ["gemma3", "phi"])
def test_what_was_saved_is_read_back_to_the_bit_and_never_by_subtraction(name, rank, expand_shape, tmp_path):
    folder = expand_shape(name, source_ids=SOURCES, reasoning_rank=rank)
    changed, resumed = held(folder), held(folder)
    change(changed)
    changed.save_pretrained(tmp_path)
    with copied_rows_of(resumed).reading(tmp_path):
        resumed.load_state_dict(load_file(tmp_path / "model.safetensors"), strict=False)
    assert_same_bits(resumed, changed)
    assert_same_bits(held(tmp_path), changed)
    resumed.load_state_dict(held(folder).state_dict())  # outside of the block it is the model's own again
    assert_same_bits(resumed, held(folder))


def assert_same_bits(one, other):
    expected = dict(other.named_parameters())
    assert dict(one.named_parameters()).keys() == expected.keys()
    assert all(torch.equal(each, expected[key]) for key, each in one.named_parameters())


def test_in_bfloat16_copies_are_sampled_as_they_are_scored(expand_shape):
    folder = expand_shape("llama", size=None, reasoning_rank=16, init_noise=NOISE)
    model, policy = held(folder), RegionPolicy(VocabLayout.load(folder))
    attach_region_head(model, policy=policy)
    ids = contexts(policy.layout)
    ids[:, 0] = policy.layout.think_open_id
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        scores = model(input_ids=ids, labels=ids, fused_lm_head=True).log_probs
        logits = model(input_ids=ids).logits[:, :-1]
    logps = (logits + policy.bias[scored_regions(ids, policy.layout)[:, 1:]]).log_softmax(-1)
    sampled = logps.gather(2, ids[:, 1:, None]).squeeze(2)
    open_copies = policy.is_reasoning(ids[:, 1:]) & torch.isfinite(sampled)
    assert open_copies.sum() > 10 and (sampled - scores)[open_copies].abs().max() < 1e-5


@pytest.mark.parametrize("kept", [0, -100])
def test_differences_that_cannot_be_read_are_refused_in_one_line(kept, expand_shape, tmp_path):
    folder = expand_shape("phi", source_ids=SOURCES, reasoning_rank=4)
    VocabLayout.load(folder).save(tmp_path)
    if kept:
        (tmp_path / DIFFERENCES).parent.mkdir()
        (tmp_path / DIFFERENCES).write_bytes((folder / DIFFERENCES).read_bytes()[:kept])
    with pytest.raises(UserError, match="cannot be read, the differences of its reasoning rows: ") as caught:
        attach_low_rank_rows(stock(folder), tmp_path)
    assert "\n" not in str(caught.value)
