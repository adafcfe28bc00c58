"""The region head of a whole model, against stock logits and the definition."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rlvr_vocab.vocab.head import attach_region_head, head_settings
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import scored_regions

SHAPES = ("qwen3", "qwen2", "llama", "gemma3", "gpt2", "gpt2_untied", "olmo2", "phi")


def load(folder, temperature=1.0):
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    policy = RegionPolicy(VocabLayout.load(folder))
    attach_region_head(model, policy=policy, temperature=temperature)
    return model, policy


def allowed_sequences(policy, rows, length):
    """Random ids with tags in them, each allowed where it stands."""
    layout, generator = policy.layout, torch.Generator().manual_seed(0)
    ids = torch.randint(10, 320, (rows, length), generator=generator)
    tags = torch.tensor([layout.think_open_id, layout.think_close_id])
    chosen = torch.rand(rows, length, generator=generator) < 0.2
    ids[chosen] = tags[torch.randint(0, 2, (int(chosen.sum()),), generator=generator)]
    copies = torch.arange(layout.rows)
    copies[list(layout.source_ids)] = layout.standard_size + torch.arange(layout.size)
    copied = scored_regions(ids, layout).bool() & ~torch.isin(ids, torch.tensor(layout.control_ids))
    return torch.where(copied, copies[ids], ids)


@pytest.mark.parametrize("temperature", [0.6, 1.0])
@pytest.mark.parametrize("name", SHAPES)
def test_scores_of_labels_equal_the_definition_on_stock_logits(name, temperature, expand_shape):
    model, policy = load(expand_shape(name, size=None, mode="replace"), temperature)
    ids = allowed_sequences(policy, 3, 20)
    labels = ids.clone()
    labels[:, :5] = -100
    labels[1, 9] = -100
    with torch.no_grad():
        scores = model(input_ids=ids, labels=labels, fused_lm_head=True)
        logits = model(input_ids=ids).logits[:, :-1].double()
    regions = scored_regions(ids, policy.layout)[:, 1:]
    log_p = (logits / temperature + policy.bias.double()[regions]).log_softmax(-1)
    entropy = -(log_p.exp() * log_p.masked_fill(log_p.isinf(), 0.0)).sum(-1)
    scored = labels[:, 1:] != -100
    expected = log_p.gather(2, ids[:, 1:, None]).squeeze(2)
    assert torch.isfinite(expected[scored]).all() and regions[scored].unique().tolist() == [0, 1]
    assert (scores.log_probs - expected)[scored].abs().max() < 5e-5
    assert (scores.entropy - entropy)[scored].abs().max() < 5e-5
    assert scores.log_probs[~scored].eq(0).all() and scores.entropy[~scored].eq(0).all()


@pytest.mark.parametrize("mode", ["expand", "replace"])
def test_autocast_to_bfloat16_makes_no_systematic_error(mode, expand_shape):
    # Half of the vocabulary has three copies: an error in their odds moves probability to the other half.
    model, policy = load(expand_shape("qwen3", source_ids=tuple(range(10, 170)) * 3, mode=mode))
    ids = allowed_sequences(policy, 128, 160)
    regions = scored_regions(ids, policy.layout)[:, 1:]
    with torch.no_grad():
        exact = model(input_ids=ids, labels=ids, fused_lm_head=True).log_probs
        with torch.autocast("cpu", torch.bfloat16):
            rounded = model(input_ids=ids, labels=ids, fused_lm_head=True).log_probs
    assert not torch.equal(rounded, exact)
    copies = policy.is_reasoning(ids[:, 1:])
    for group in (regions == 0, (regions == 1) & copies, (regions == 1) & ~copies):
        assert (rounded - exact)[group].mean().abs() < 1e-3


def test_a_batch_with_nothing_to_score_still_has_a_backward(expand_shape):
    model, _ = load(expand_shape("llama", size=None))
    ids = torch.tensor([[70, 71, 72]])
    model(input_ids=ids, labels=torch.full_like(ids, -100), fused_lm_head=True).log_probs.sum().backward()
    assert all(p.grad is None or p.grad.eq(0).all() for p in model.parameters())


@pytest.mark.parametrize(
    ("model_type", "fields", "expected"),
    [
        ("gemma2", {"final_logit_softcapping": 30.0}, (30.0, 1.0)),
        ("recurrent_gemma", {"logits_soft_cap": 20.0}, (20.0, 1.0)),
        ("xlstm", {"output_logit_soft_cap": 15.0}, (15.0, 1.0)),
        ("cohere", {"logit_scale": 0.0625}, (None, 0.0625)),
        ("granite", {"logits_scaling": 8.0}, (None, 0.125)),
        ("falcon_h1", {"lm_head_multiplier": 0.5}, (None, 0.5)),
    ],
)
def test_softcap_and_scale_are_found_under_each_family_s_name(model_type, fields, expected):
    settings = head_settings(AutoConfig.for_model(model_type, **fields), temperature=0.7)
    assert (settings.temperature, settings.softcap, settings.scale) == (0.7, *expected)
