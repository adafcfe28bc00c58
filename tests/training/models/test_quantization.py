"""Runs over weights in 8 and 4 bit: what is quantized, what moves, and that sampling, scoring and evaluation agree."""

import pytest
import torch
from safetensors.torch import load_file
from transformers.integrations.bitsandbytes import dequantize_bnb_weight

from rlvr_vocab.evaluation.sampling import Checkpoint, SamplingSettings, sample_completions
from rlvr_vocab.training.models.lora import linear_layers, quantized_layers, skeleton
from rlvr_vocab.training.settings import Lora
from tests.training.conftest import logits_of

bnb = pytest.importorskip("bitsandbytes", reason="the extra quantization is not installed")

BITS = (8, 4)
ROWS = [{"prompt": [{"role": "user", "content": "What is 3 + 4?"}]}]


@pytest.fixture
def quantized(expand_shape, make_trainer, tmp_path):
    """A trainer on quantized weights, by shape and bits; its folder is its first attribute `initial_model`."""

    def make(name, bits, lora=None, out="run", **args):
        folder = expand_shape(name, size=None, open_thinking="prefill")
        return make_trainer(folder, tmp_path / out, lora=lora or Lora(), bits=bits, **args)

    return make


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("name", ["qwen3", "gpt2"])
def test_every_linear_layer_is_quantized_and_embedding_and_head_are_the_initial_ones(name, bits, quantized):
    trainer = quantized(name, bits)
    base = trainer.model.get_base_model()
    quantized_names = {
        module_name.replace(".base_layer", "")
        for module_name, module in base.named_modules()
        if isinstance(module, bnb.nn.Linear8bitLt if bits == 8 else bnb.nn.Linear4bit)
    }
    assert quantized_names == set(linear_layers(skeleton(trainer.initial_model)))
    initial = load_file(trainer.initial_model / "model.safetensors")
    embedding = {"gpt2": "transformer.wte.weight"}.get(name, "model.embed_tokens.weight")
    for module, key in ((base.get_input_embeddings(), embedding), (base.get_output_embeddings(), "lm_head.weight")):
        assert module.weight.dtype == torch.float32
        assert torch.equal(module.weight, initial.get(key, initial[embedding]))


@pytest.mark.parametrize("bits", BITS)
def test_an_evaluation_neither_computes_otherwise_nor_cuts_the_gradient_of_what_follows(bits, quantized):
    trainer = quantized("llama", bits)
    model, rows = trainer.model.train(), trainer.policy.layout.rows
    for parameter in (each for each in model.parameters() if each.requires_grad):
        parameter.data.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.02)
    for layer in model.modules():
        if isinstance(layer, torch.nn.Dropout):
            layer.p = 0.0
    before, gradients = logits_of(model, rows), lora_gradients(model, rows)
    checkpoint = Checkpoint(trainer.processing_class, trainer.policy.layout, model=model)
    sample_completions(checkpoint, ROWS, SamplingSettings(max_new_tokens=4))
    assert model.training
    assert torch.equal(logits_of(model.eval(), rows), before)
    after = lora_gradients(model.train(), rows)
    assert all(torch.equal(after[name], gradient) and gradient.any() for name, gradient in gradients.items())


def lora_gradients(model, rows):
    ids = torch.randint(0, rows, (2, 12), generator=torch.Generator().manual_seed(3))
    model.zero_grad()
    model(input_ids=ids).logits.logsumexp(-1).sum().backward()
    return {name: each.grad.clone() for name, each in model.named_parameters() if "lora_A" in name or "lora_B" in name}


@pytest.mark.parametrize("bits", BITS)
def test_a_token_is_scored_as_it_was_sampled_and_the_reference_is_the_quantized_model(
    bits, quantized, farthest_from_its_score
):
    trainer = quantized("phi", bits, Lora(lora_dropout=0.5), max_completion_length=24, kl_log_steps=1)
    trainer.model.train()
    batch = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader()))[:4])
    assert farthest_from_its_score(trainer, batch) < 1e-4 and abs(trainer.train_metrics["kl"][0]) < 1e-6


@pytest.mark.parametrize("bits", BITS)
def test_a_layer_multiplies_by_its_restored_weights_whatever_stands_beside_a_token(bits, quantized):
    """LLM.int8() rounds inputs too, by what else is in the batch: there, a token's result depends on the others."""
    layer = next(iter(quantized_layers(quantized("llama", bits).model)))
    weight = dequantize_bnb_weight(layer.weight, getattr(layer, "state", None))
    inputs = torch.randn(3, 7, weight.size(1), generator=torch.Generator().manual_seed(0)) * 8
    for chosen in (inputs, inputs[:1], inputs[1:2, 3:4]):
        torch.testing.assert_close(layer(chosen), chosen @ weight.T.to(chosen.dtype))


@pytest.mark.slow
@pytest.mark.parametrize(("bits", "optim"), [(8, "adamw_8bit"), (4, "paged_adamw_32bit")])
def test_a_resumed_run_goes_on_as_if_it_had_not_stopped(bits, optim, quantized, tmp_path):
    steps = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "learning_rate": 1e-2, "optim": optim}
    lora = Lora(r=64)  # of smaller tensors bitsandbytes rounds no state
    whole = quantized("llama", bits, lora, out="whole", **steps)
    whole.train()
    resumed = quantized("llama", bits, lora, out="resumed", **steps)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    ends = resumed.model.state_dict()
    assert [name for name, tensor in whole.model.state_dict().items() if not torch.equal(ends[name], tensor)] == []
