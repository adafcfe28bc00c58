"""Scores and gradients of the region head against a dense float64 softmax."""

import pytest
import torch

from rlvr_vocab.vocab import logprobs as module
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.logprobs import HeadSettings, region_logprobs
from rlvr_vocab.vocab.policy import FORBIDDEN, RegionPolicy

STANDARD, COPIES, HIDDEN, POSITIONS = 61, 40, 16, 33
MIXES = {
    "mixed": [index % 2 for index in range(POSITIONS)],
    "all answering": [0] * POSITIONS,
    "all thinking": [1] * POSITIONS,
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Several blocks of tokens and of rows, the last ones partly filled."""
    monkeypatch.setattr(module, "_TOKENS_PER_BLOCK", 7)
    monkeypatch.setattr(module, "_ROWS_PER_BLOCK", 19)


def make_policy(mode, preserve_odds=True):
    layout = VocabLayout(STANDARD, tuple(range(COPIES)), 50, 51, (), (3, 50, 51), mode, preserve_odds)
    return RegionPolicy(layout)


def make_inputs(regions, policy, dtype=torch.float32, head_bias=False):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(POSITIONS, HIDDEN, generator=generator).to(dtype).requires_grad_()
    weight = torch.randn(STANDARD + COPIES, HIDDEN, generator=generator).to(dtype).requires_grad_()
    bias = torch.randn(STANDARD + COPIES, generator=generator).to(dtype).requires_grad_() if head_bias else None
    allowed = torch.isfinite(policy.bias)[torch.tensor(regions)].float()
    targets = torch.multinomial(allowed, 1, generator=generator).squeeze(1)
    return hidden, weight, bias, targets


def dense(hidden, weight, bias, targets, regions, policy, settings):
    """The definition, in float64, with the whole table of logits; forbidden terms are left out of each sum."""
    z = settings.scale * (hidden.double() @ weight.double().t() + (0 if bias is None else bias.double()))
    if settings.softcap is not None:
        z = settings.softcap * torch.tanh(z / settings.softcap)
    log_p = (z / settings.temperature + policy.bias[regions].double()).log_softmax(-1)
    entropy = torch.stack([-(row[row.isfinite()].exp() * row[row.isfinite()]).sum() for row in log_p])
    return log_p.gather(1, targets.unsqueeze(1)).squeeze(1), entropy


@pytest.mark.parametrize("head_bias", [False, True])
@pytest.mark.parametrize("settings", [HeadSettings(1.0), HeadSettings(0.6, softcap=5.0, scale=0.7)])
@pytest.mark.parametrize("mode", ["expand", "replace"])
@pytest.mark.parametrize("mix", MIXES)
def test_scores_and_gradients_equal_a_dense_float64_reference(mix, mode, settings, head_bias):
    policy, regions = make_policy(mode), MIXES[mix]
    regions_N = torch.tensor(regions)
    inputs = make_inputs(regions, policy, head_bias=head_bias)
    upstream = torch.randn(2, POSITIONS, generator=torch.Generator().manual_seed(1))

    results = []
    for score in (region_logprobs, dense):
        leaves = [tensor for tensor in inputs[:3] if tensor is not None]
        for leaf in leaves:
            leaf.grad = None
        logps, entropy = score(*inputs, regions_N, policy, settings)
        (logps * upstream[0] + entropy * upstream[1]).sum().backward()
        results.append((logps, entropy, *(leaf.grad.clone() for leaf in leaves)))

    for ours, reference in zip(*results, strict=True):
        assert torch.isfinite(ours).all()
        scale = reference.abs().max()
        assert (ours.double() - reference.double()).abs().max() <= 1e-5 * scale


def test_a_forbidden_target_scores_as_forbidden_and_leaves_gradients_finite():
    policy = make_policy("expand")
    regions = torch.zeros(POSITIONS, dtype=torch.long)
    hidden, weight, _, targets = make_inputs(regions.tolist(), policy)
    targets[0] = STANDARD + 1
    logps, entropy = region_logprobs(hidden, weight, None, targets, regions, policy, HeadSettings())
    assert logps[0] <= FORBIDDEN / 2
    (logps[1:].sum() + entropy.sum()).backward()
    assert torch.isfinite(weight.grad).all() and torch.isfinite(hidden.grad).all()


def test_no_positions_give_no_scores_and_a_zero_gradient():
    policy = make_policy("expand")
    hidden, weight, _, targets = make_inputs([1] * POSITIONS, policy)
    nothing = torch.zeros(0, dtype=torch.long)
    logps, _ = region_logprobs(hidden[:0], weight, None, targets[:0], nothing, policy, HeadSettings())
    logps.sum().backward()
    assert logps.shape == (0,) and weight.grad.eq(0).all()


@pytest.mark.parametrize("first", [0, 23, STANDARD, STANDARD + COPIES - 1])
@pytest.mark.parametrize("mix", MIXES)
def test_trained_rows_stand_for_the_end_of_the_table_and_get_its_gradient(mix, first):
    policy, regions = make_policy("expand"), MIXES[mix]
    regions_N, settings = torch.tensor(regions), HeadSettings(0.8)
    hidden, weight, bias, targets = make_inputs(regions, policy, head_bias=True)
    frozen = weight.detach().clone()
    frozen[first:] = torch.nan  # what stands there is not read
    rows = weight.detach()[first:].clone().requires_grad_()
    upstream = torch.randn(2, POSITIONS, generator=torch.Generator().manual_seed(1))

    logps, entropy = region_logprobs(hidden, frozen, bias, targets, regions_N, policy, settings, rows)
    (logps * upstream[0] + entropy * upstream[1]).sum().backward()
    ours = (logps, entropy, hidden.grad.clone(), bias.grad.clone(), rows.grad)
    hidden.grad = bias.grad = None
    logps, entropy = dense(hidden, weight, bias, targets, regions_N, policy, settings)
    (logps * upstream[0] + entropy * upstream[1]).sum().backward()

    for result, reference in zip(ours, (logps, entropy, hidden.grad, bias.grad, weight.grad[first:]), strict=True):
        assert torch.isfinite(result).all()
        scale = reference.abs().max().clamp(min=1e-3)
        assert (result.double() - reference.double()).abs().max() <= 1e-5 * scale
