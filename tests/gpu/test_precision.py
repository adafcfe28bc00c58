"""bfloat16 on the device: how far samples and scores are from float32, and the products of the head from float64."""

import pytest
import torch

from rlvr_vocab.training.metrics.batch import whole_sequences
from rlvr_vocab.vocab.head_logits import HeadSettings
from rlvr_vocab.vocab.regions import scored_regions
from tests.vocab import test_logprobs

TEMPERATURE = 0.9
FORMS = {
    "n = 0": {"size": 0},
    "low rank": {"reasoning_rank": 16},
    "independent, replace": {"reasoning_rank": None, "mode": "replace"},
}


def completion_logps(trainer, ids, mask, length, *, autocast):
    """By the model's own forward pass and the definition of the policy, over whole rows of logits."""
    policy = trainer.policy
    with torch.no_grad(), torch.autocast(ids.device.type, torch.bfloat16, enabled=autocast):
        logits = trainer.model(input_ids=ids, attention_mask=mask, logits_to_keep=length + 1).logits[:, :-1]
    regions = scored_regions(ids, policy.layout)[:, -length:]
    log_p = torch.stack(
        [
            (row.double() / TEMPERATURE + policy.bias_on(ids.device).double()[region]).log_softmax(-1)
            for row, region in zip(logits, regions, strict=True)
        ]
    )
    return log_p.gather(2, ids[:, -length:].unsqueeze(2)).squeeze(2)


@pytest.mark.parametrize("form", FORMS)
def test_samples_and_scores_are_as_near_to_float32_as_a_plain_forward_pass(form, expanded, train_on, report, tmp_path):
    sizes = {"per_device_train_batch_size": 16, "num_generations": 4, "max_completion_length": 32}
    trainer = train_on(expanded(**FORMS[form]), tmp_path, temperature=TEMPERATURE, **sizes)
    batch = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader()))[:16])
    ids, mask = whole_sequences(batch)
    kept, length = batch["completion_mask"].bool(), batch["completion_ids"].size(1)
    with torch.no_grad():
        scored, *_ = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, length)
    exact = completion_logps(trainer, ids, mask, length, autocast=False)
    found = {
        "sampled": batch["sampling_per_token_logps"],
        "scored": scored,
        "plain": completion_logps(trainer, ids, mask, length, autocast=True),
    }
    off = {name: (logps - exact)[kept].abs().mean().item() for name, logps in found.items()}
    report(f"bf16, {form}: mean distance from float32 " + ", ".join(f"{name} {each:.1e}" for name, each in off.items()))
    assert kept.sum() > 200 and off["plain"] > 1e-5
    assert off["scored"] < 1.2 * off["plain"] and off["sampled"] < 1.2 * off["plain"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("form", ["independent", "low_rank"])
def test_products_of_the_head_are_summed_in_float32(form, dtype, device, report, monkeypatch):
    """Of weights in float32 that bfloat16 can hold, so that both sides multiply the same numbers."""
    monkeypatch.setattr(test_logprobs, "HIDDEN", 512)
    case, settings = test_logprobs.Case(form, sources="all, thrice"), HeadSettings(temperature=0.8)
    case.hidden.data /= 8
    for leaf in case.leaves:
        leaf.data = leaf.data.bfloat16().float()
    used = test_logprobs.UPSTREAM["all"]
    dense = case.dense(settings)
    exact = case.gradients(dense, used)
    for name in ("hidden", "weight", *(("A", "B") if form == "low_rank" else ())):
        setattr(case, name, getattr(case, name).detach().to(device).requires_grad_())
    case.targets, case.regions = case.targets.to(device), case.regions.to(device)
    with torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
        scores = case.scores(settings)
    off = max((ours.cpu() - there).abs().max().item() for ours, there in zip(scores[:3], dense[:3], strict=True))
    found = [each.cpu() for each in case.gradients(scores, used)]
    apart = max(((ours - there).norm() / there.norm()).item() for ours, there in zip(found, exact, strict=True))
    report(f"head in {dtype}, {form}: {off:.1e} nats from float64, gradients {apart:.1e} of their norm")
    # Gradients of logits, and what a low-rank form projects, are rounded to bfloat16; on a CPU each product is, too.
    exact_products = dtype == torch.float32 or (device.type == "cuda" and form == "independent")
    assert off < (1e-4 if exact_products else 0.1)
    assert apart < (1e-5 if dtype == torch.float32 else 2**-6)
