"""Planned activations against the bytes that autograd's hooks see a model keep."""

import itertools

import pytest
import torch
import transformers
from peft import LoraConfig, get_peft_model

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.plan.architecture import read_architecture
from rlvr_vocab.plan.devices import CARDS
from rlvr_vocab.plan.memory import cast_weights, kept_activations
from rlvr_vocab.plan.workload import Workload

from .test_architecture import BODY

TOKENS, AT_ONCE = 57, 3  # 171 positions: no dimension of a weight
MODELS = {
    "llama": {"model_type": "llama"},
    "qwen3": {"model_type": "qwen3", "head_dim": 32},
    "gemma3": {"model_type": "gemma3_text", "head_dim": 24},
}


def kept_bytes(model, *, half):
    """Bytes of distinct tensors kept for the backward pass: activations, and copies of weights in 16 bits."""
    own = {parameter.data_ptr() for parameter in model.parameters()}
    shapes = {tuple(parameter.shape) for parameter in model.parameters()}
    shapes |= {shape[::-1] for shape in shapes}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    ids = torch.randint(3, 300, (AT_ONCE, TOKENS))
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    kept_by_autograd = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with torch.autocast("cpu", torch.bfloat16, enabled=half), kept_by_autograd:
        model.base_model(input_ids=ids, attention_mask=mask, use_cache=False)
    casts = sum(size for size, tensor in kept.values() if tuple(tensor.shape) in shapes and tensor.dim() == 2)
    return sum(size for size, _ in kept.values()) - casts, casts


def planned(config, *words):
    sizes = (f"training.per_device_train_batch_size={AT_ONCE}", "training.max_completion_length=16")
    run = read_settings("train", ["model=smollm2_135m", *sizes, *words])
    shape = read_architecture(config.to_dict(), "here")
    return Workload(run, CARDS["h100"], shape, copies=0, prompt=TOKENS - 16)


@pytest.mark.parametrize(
    ("name", "half", "adapter"),
    [
        ("llama", False, False),
        ("qwen3", True, True),
        *(pytest.param("gemma3", *case, marks=pytest.mark.slow) for case in itertools.product((False, True), repeat=2)),
        pytest.param("qwen3", True, False, marks=pytest.mark.slow),
    ],
)
def test_bytes_kept_for_the_backward_pass_are_those_of_autograd(name, half, adapter):
    config = transformers.AutoConfig.for_model(**BODY, **MODELS[name])
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    words = ["training.gradient_checkpointing=false", f"training.bf16={str(half).lower()}"]
    if adapter:
        model = with_adapter(model)
        words += ["model.lora.enabled=true", "model.model_kwargs.torch_dtype=fp32"]
    work = planned(config, *words)
    activations, casts = kept_bytes(model.train(), half=half)
    assert kept_activations(work) == pytest.approx(activations, rel=0.06)
    if half and not adapter:
        assert cast_weights(work) == casts


def with_adapter(model):
    return get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", lora_dropout=0.05))


def test_an_adapter_on_16_bit_weights_without_autocast_keeps_inputs_in_float32():
    config = transformers.AutoConfig.for_model(**BODY, **MODELS["llama"])
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.bfloat16)
    words = ("training.gradient_checkpointing=false", "training.bf16=false", "model.lora.enabled=true")
    work = planned(config, *words, "model.model_kwargs.torch_dtype=bf16")
    activations, _ = kept_bytes(with_adapter(model).train(), half=False)
    assert kept_activations(work) == pytest.approx(activations, rel=0.06)


def test_checkpointing_keeps_the_input_of_each_layer():
    config = transformers.AutoConfig.for_model(**BODY, **MODELS["llama"])
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    activations, _ = kept_bytes(model.train(), half=False)
    work = planned(config, "training.gradient_checkpointing=true", "training.bf16=false")
    assert kept_activations(work) == pytest.approx(activations, rel=0.2)
