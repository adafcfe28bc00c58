"""Attention, fused kernels and quantized weights: what a device computes by kernels of its own."""

from importlib.metadata import distributions

import pytest
import torch
from transformers.integrations.liger import apply_liger_kernel

from rlvr_vocab.training.metrics.batch import whole_sequences
from rlvr_vocab.training.settings import Lora

# Mean distance in nats between two computations in bfloat16 of logits that spread by 2: they round otherwise.
MOST_APART = 0.06
FLASH_PACKAGES = {f"flash_attention_{number}": f"flash-attn-{number}".removesuffix("-2") for number in (2, 3, 4)}
ATTENTIONS = ("eager", "sdpa", "flex_attention", *FLASH_PACKAGES)


def a_batch(trainer):
    return trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader()))[:4])


def scored(trainer, batch):
    """Log-probabilities of a batch's completions, and the gradient of their sum by the first layer's weights."""
    arguments = *whole_sequences(batch), batch["completion_ids"].size(1)
    logps, *_ = trainer._get_per_token_logps_and_entropies(trainer.model, *arguments)
    kept = logps[batch["completion_mask"].bool()]
    weight = next(each for name, each in trainer.model.named_parameters() if name.endswith("q_proj.weight"))
    return kept.detach(), torch.autograd.grad(kept.sum(), weight)[0]


@pytest.fixture
def by_sdpa(expanded, train_on, tmp_path):
    """A trainer with the attention that others are compared with, a batch of it and its scores."""
    trainer = train_on(expanded(), tmp_path / "sdpa", max_completion_length=24)
    batch = a_batch(trainer)
    return batch, *scored(trainer, batch)


@pytest.mark.filterwarnings("ignore:`use_liger_kernel=True` is deprecated")  # by TRL, for kernels of the hub
@pytest.mark.parametrize("kernel", [*ATTENTIONS, "liger"])
def test_a_kernel_scores_as_sdpa_and_stock_layers_do_and_as_it_samples(
    kernel, by_sdpa, device, expanded, train_on, farthest_from_its_score, report, tmp_path
):
    package = {**FLASH_PACKAGES, "liger": "liger_kernel"}.get(kernel)
    if device.type == "cpu" and (package or kernel == "flex_attention"):
        pytest.skip(f"{kernel} needs a CUDA GPU, and there is none here")
    if package is not None and not any(distributions(name=package)):
        pytest.skip(f"{package} is not installed here")
    loading = {"dtype": "float32", "attn_implementation": "sdpa" if kernel == "liger" else kernel}
    options = {"model_init_kwargs": loading, "use_liger_kernel": kernel == "liger"}
    trainer = train_on(expanded(), tmp_path, max_completion_length=8, **options)
    if kernel == "liger":
        apply_liger_kernel(trainer.model, trainer.args.liger_kernel_config)  # as Transformers does when training starts
    norm = trainer.model.model.norm
    assert trainer.model.config._attn_implementation == loading["attn_implementation"]
    assert ("liger" in f"{type(norm).__module__}{norm.forward.__module__}".lower()) == (kernel == "liger")
    batch, of_sdpa, gradient_of_sdpa = by_sdpa
    logps, gradient = scored(trainer, batch)
    apart = (logps - of_sdpa).abs().mean().item()
    turned = torch.nn.functional.cosine_similarity(gradient.flatten(), gradient_of_sdpa.flatten(), dim=0).item()
    report(f"{kernel}: {apart:.1e} nats from SDPA on average, cosine of the gradients {turned:.4f}")
    assert apart < MOST_APART and turned > 0.98
    assert farthest_from_its_score(trainer, a_batch(trainer)) < 0.5


@pytest.mark.parametrize("bits", [4, 8])
def test_quantized_weights_score_as_they_sample_and_train_their_adapter(
    bits, expanded, train_on, farthest_from_its_score, report, tmp_path
):
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed here: pip install -e '.[quantization]'")
    trainer = train_on(expanded(), tmp_path, bits=bits, lora=Lora(r=4), max_completion_length=24)
    before = {name: each.clone() for name, each in trainer.model.named_parameters() if each.requires_grad}
    layers = [each for each in trainer.model.modules() if type(each).__name__ in ("Linear4bit", "Linear8bitLt")]
    held = sum(each.weight.numel() * each.weight.element_size() for each in layers)
    weights = sum(each.in_features * each.out_features for each in layers)
    apart = farthest_from_its_score(trainer, a_batch(trainer))
    report(f"{bits} bit: {8 * held / weights:.2f} bits a weight, farthest token {apart:.1e} nats from its score")
    assert 8 * held / weights == bits and apart < 0.5
    trainer.train()
    moved = {name for name, each in trainer.model.named_parameters() if name in before and (each != before[name]).any()}
    assert moved == before.keys() and any("lora_B" in name for name in moved)
