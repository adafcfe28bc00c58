"""Before training, an expanded model says exactly what its base says: surface log-probabilities, every setting."""

import random

import pytest
import torch
from transformers import AutoModelForCausalLM

from rlvr_vocab.vocab.copied_rows import attach_low_rank_rows, copied_rows_of
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import ANSWERING, THINKING

HOLES = {"source_ids": (*range(20, 90), 5, 9, 9, 300, *range(100, 120), 9)}
COPIES = {"thrice": {"size": None, "multiplicity": 3}, "holes": HOLES}
CASES = (
    *(("qwen3", None, "thrice", "expand"), ("gemma3", None, "thrice", "replace"), ("phi", None, "holes", "replace")),
    *(("qwen3", 4, "thrice", "expand"), ("gemma3", 4, "holes", "replace"), ("phi", 4, "thrice", "expand")),
    *(("qwen2", 4, "holes", "replace"), ("gpt2_untied", 0, "holes", "expand"), ("llama", 0, "thrice", "replace")),
    *(("olmo2", None, "holes", "expand"), ("olmo2", 4, "thrice", "replace")),
)
TEMPERATURES = (0.6, 1.0, 1.5)
TOLERANCE = 5e-5


def base_logprobs(model, ids, temperature, added):
    """Stock logits of the base; rows of tags that the expansion adds are left out and the rest renormalised."""
    with torch.no_grad():
        logits = model(input_ids=ids).logits[:, -1].double()
    logits[:, [tag for tag in added if tag < logits.size(1)]] = -torch.inf
    return (logits / temperature).log_softmax(-1)


def surface_logprobs(model, ids, region, temperature, policy, added):
    """The definition on the logits of an expanded model: copies summed, added tags left out."""
    with torch.no_grad():
        logits = model(input_ids=ids).logits[:, -1]
    logps = (logits / temperature + policy.bias[region]).log_softmax(-1).double()
    surface = policy.surface_ids(torch.arange(policy.layout.rows))
    probabilities = torch.zeros(len(logps), policy.layout.standard_size, dtype=torch.float64)
    probabilities.index_add_(1, surface, logps.exp())
    assert (probabilities.sum(1) - 1).abs().max() < 1e-4
    probabilities[:, added] = 0.0
    return (probabilities / probabilities.sum(1, keepdim=True)).log()


def with_copies(ids, layout, rng):
    """A context of the expanded model that reads the same: half of its ids are copies."""
    copies = {source: layout.standard_size + k for k, source in enumerate(layout.source_ids)}
    return torch.tensor(
        [[copies[token] if token in copies and rng.random() < 0.5 else token for token in row] for row in ids.tolist()]
    )


@pytest.mark.parametrize(("name", "rank", "copies", "mode"), CASES)
def test_surface_logprobs_are_those_of_the_base(name, rank, copies, mode, make_shape, expand_shape):
    shape, folder = make_shape(name), expand_shape(name, reasoning_rank=rank, mode=mode, **COPIES[copies])
    base = AutoModelForCausalLM.from_pretrained(shape.folder).eval()
    expanded = AutoModelForCausalLM.from_pretrained(folder).eval()
    attach_low_rank_rows(expanded, folder)
    policy = RegionPolicy(VocabLayout.load(folder))
    assert (copied_rows_of(expanded) is None) == (policy.layout.reasoning_rank is None)
    added = [] if shape.knows_tags else [policy.layout.think_open_id, policy.layout.think_close_id]
    ids = torch.randint(0, 330, (3, 12), generator=torch.Generator().manual_seed(0))
    copied = with_copies(ids, policy.layout, random.Random(0))
    for temperature in TEMPERATURES:
        expected = base_logprobs(base, ids, temperature, added)
        for region in (ANSWERING, THINKING):
            ours = surface_logprobs(expanded, copied, region, temperature, policy, added)
            torch.testing.assert_close(ours[:, : expected.size(1)], expected, rtol=0, atol=TOLERANCE)
