"""Before training, an expanded model says exactly what its base says: surface log-probabilities, every setting."""

import json
import random
from itertools import product
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlvr_vocab.vocab.copied_rows import attach_low_rank_rows, copied_rows_of
from rlvr_vocab.vocab.expand import Expansion, plan_expansion, write_expansion
from rlvr_vocab.vocab.head import head_settings
from rlvr_vocab.vocab.head_logits import HeadWeights
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.logprobs import region_logprobs
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import ANSWERING, THINKING

QUICK = (("qwen3", "expand", 3), ("gemma3", "replace", 1), ("gpt2_untied", "expand", 1), ("phi", "replace", 3))
SHAPES = [
    case if case in QUICK else pytest.param(*case, marks=pytest.mark.slow)
    for case in product(
        ("qwen3", "qwen2", "llama", "gemma3", "gpt2", "gpt2_untied", "phi"), ("expand", "replace"), (1, 3)
    )
]
HOLES = {"source_ids": (*range(20, 90), 5, 9, 9, 300, *range(100, 120), 9)}
COPIES = {"once": {"size": None}, "thrice": {"size": None, "multiplicity": 3}, "holes": HOLES}
HELD_QUICK = (
    ("qwen3", 4, "thrice", "expand"),
    ("gemma3", 4, "holes", "replace"),
    ("phi", 4, "thrice", "expand"),
    ("phi", 4, "holes", "replace"),
    ("gpt2_untied", 0, "once", "expand"),
)
HELD = [
    case if case in HELD_QUICK else pytest.param(*case, marks=pytest.mark.slow)
    for case in product(("qwen3", "gemma3", "gpt2_untied", "phi"), (4, 0), COPIES, ("expand", "replace"))
]
TEMPERATURES = (0.6, 1.0, 1.5)
TOLERANCE = 5e-5
GSM8K = Path(__file__).parents[2].parent / "shared" / "data" / "gsm8k_train.jsonl"


def base_logprobs(model, ids, temperature, added):
    """Stock logits of the base; rows of tags that the expansion adds are left out and the rest renormalised."""
    with torch.no_grad():
        logits = model(input_ids=ids).logits[:, -1].double()
    logits[:, [tag for tag in added if tag < logits.size(1)]] = -torch.inf
    return (logits / temperature).log_softmax(-1)


def surface_logprobs(model, ids, region, temperature, policy, added):
    """What the region head gives to every id after each context: copies summed, added tags left out."""
    with torch.no_grad():
        hidden = model.base_model(input_ids=ids).last_hidden_state[:, -1]
        scores = [_every_score(model, state, region, temperature, policy) for state in hidden]
    return summed_over_copies(torch.stack(scores).double(), policy, added)


def _every_score(model, state, region, temperature, policy):
    head, held, every_id = model.get_output_embeddings(), copied_rows_of(model), torch.arange(policy.layout.rows)
    regions, states = torch.full_like(every_id, region), state.expand(len(every_id), -1)
    rows = HeadWeights(head.weight, head.bias) if held is None else held.head_weights(states)
    return region_logprobs(states, rows, every_id, regions, policy, head_settings(model.config, temperature))[0]


def summed_over_copies(logps, policy, added):
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


def largest_difference(base, expanded):
    compared = torch.isfinite(base)
    assert torch.equal(compared, torch.isfinite(expanded[:, : base.size(1)]))
    return (base[compared] - expanded[:, : base.size(1)][compared]).abs().max().item()


@pytest.mark.parametrize(("name", "mode", "multiplicity"), SHAPES)
def test_surface_logprobs_of_tiny_shapes_are_those_of_the_base(name, mode, multiplicity, make_shape, expand_shape):
    assert_text_is_that_of_the_base(
        make_shape(name), expand_shape(name, size=None, multiplicity=multiplicity, mode=mode)
    )


@pytest.mark.parametrize(("name", "rank", "copies", "mode"), HELD)
def test_so_they_are_where_copies_are_held_as_differences(name, rank, copies, mode, make_shape, expand_shape):
    folder = expand_shape(name, reasoning_rank=rank, mode=mode, **COPIES[copies])
    assert_text_is_that_of_the_base(make_shape(name), folder)


def assert_text_is_that_of_the_base(shape, folder):
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
            assert largest_difference(expected, ours) < TOLERANCE


@pytest.fixture(scope="module")
def smollm2_contexts(smollm2):
    """SmolLM2 in float32, and the beginnings of real questions."""
    if not GSM8K.is_file():
        pytest.skip(f"the real problem sets are not at {GSM8K.parent}")
    texts = [json.loads(line)["question"] for line in GSM8K.read_text(encoding="utf-8").split("\n")[:12]]
    tokens = AutoTokenizer.from_pretrained(smollm2)(texts, truncation=True, max_length=16, return_tensors="pt")
    return AutoModelForCausalLM.from_pretrained(smollm2, dtype="float32").eval(), tokens["input_ids"]


@pytest.mark.slow
def test_surface_logprobs_of_smollm2_are_those_of_the_base(smollm2, smollm2_contexts, tmp_path):
    base, ids = smollm2_contexts
    plan = plan_expansion(str(smollm2), Expansion(size=1000))
    write_expansion(plan, tmp_path / "out")
    expanded = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="float32").eval()
    policy = RegionPolicy(plan.layout)
    added = [policy.layout.think_open_id, policy.layout.think_close_id]
    with torch.no_grad():
        logits = expanded(input_ids=with_copies(ids, policy.layout, random.Random(0))).logits[:, -1]
    for temperature in TEMPERATURES:
        expected = base_logprobs(base, ids, temperature, added)
        for region in (ANSWERING, THINKING):
            logps = (logits / temperature + policy.bias[region]).log_softmax(-1)
            ours = summed_over_copies(logps.double(), policy, added)
            assert largest_difference(expected, ours) < TOLERANCE


def test_without_preserve_odds_the_uncopied_lose_half_of_their_odds(make_shape, expand_shape):
    folder = expand_shape("llama", size=None, preserve_odds=False)
    base = AutoModelForCausalLM.from_pretrained(make_shape("llama").folder).eval()
    expanded = AutoModelForCausalLM.from_pretrained(folder).eval()
    policy = RegionPolicy(VocabLayout.load(folder))
    added = [policy.layout.think_open_id, policy.layout.think_close_id]
    ids = torch.tensor([[70, 71, 72]])
    expected = base_logprobs(base, ids, 1.0, added).exp()
    ours = surface_logprobs(expanded, ids, THINKING, 1.0, policy, added).exp()
    control = [token for token in policy.layout.control_ids if token not in added]
    doubled = 2 * expected
    doubled[:, control] = expected[:, control]
    assert torch.allclose(ours[:, : expected.size(1)], doubled / doubled.sum(1, keepdim=True), atol=1e-6)
