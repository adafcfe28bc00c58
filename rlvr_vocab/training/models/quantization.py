"""Linear layers in 8 or 4 bit (bitsandbytes) under an adapter; embedding and head keep their own type."""

from __future__ import annotations

from pathlib import Path
from types import MethodType
from typing import Any, Literal

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from rlvr_vocab.vocab.read_as_data import NO_CODE

Bits = Literal[4, 8]


def quantization_config(bits: Bits, initial_model: str | Path, compute_dtype: torch.dtype) -> BitsAndBytesConfig:
    """How `from_pretrained` quantizes the folder while it reads it.

    4 bit is NF4 with double quantization (QLoRA, https://arxiv.org/abs/2305.14314), 8 bit is LLM.int8()
    (https://arxiv.org/abs/2208.07339).

    Args:
        compute_dtype: the type that 4-bit weights are multiplied in; 8-bit ones follow their inputs.
    """
    # By the names they have in this architecture; left to itself, Transformers guesses what the head is.
    kept = vocabulary_modules(skeleton(initial_model))
    if bits == 8:
        return BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=kept)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=compute_dtype,
        llm_int8_skip_modules=kept,
    )


def compute_one_policy(model: nn.Module) -> None:
    """Make quantized layers compute the same whether they sample, score or are evaluated.

    8 bit: LLM.int8() rounds the inputs as well, and keeps out of that the columns which are large anywhere in a batch,
    so that a token is scored otherwise than it was sampled (docs/lora.md has the figures). Here inputs stay as they
    are and the weights are multiplied in their type, as bitsandbytes does it on a CPU in training mode.

    4 bit: on a CPU with AVX512-BF16, evaluation mode repacks the weights in place for a kernel in bf16 without a
    backward pass; a held-out measurement before training would cut the gradient of all that follows. The layers stay
    in training mode for good.
    """
    for layer in quantized_layers(model):
        if type(layer).__name__ == "Linear8bitLt":
            layer.forward = MethodType(_multiply_in_8_bit, layer)
        layer.train()
        layer.train = MethodType(_stay, layer)  # type: ignore[method-assign]


def quantized_layers(model: nn.Module) -> list[nn.Module]:
    if not (getattr(model, "is_loaded_in_8bit", False) or getattr(model, "is_loaded_in_4bit", False)):
        return []
    import bitsandbytes as bnb

    return [module for module in model.modules() if isinstance(module, bnb.nn.Linear8bitLt | bnb.nn.Linear4bit)]


def _multiply_in_8_bit(layer: Any, inputs: torch.Tensor) -> torch.Tensor:
    # Not a plain product with the restored weights: autograd would keep those of every layer for the backward pass.
    from bitsandbytes.autograd._functions import MatMul8bitFp

    if layer.weight.CB is not None:
        layer.init_8bit_state()
    bias = None if layer.bias is None else layer.bias.to(inputs.dtype)
    return MatMul8bitFp.apply(inputs, layer.weight, None, bias, layer.state)


def _stay(layer: Any, mode: bool = True) -> Any:
    return layer


def skeleton(source: str | Path, **source_kwargs: Any) -> PreTrainedModel:
    """The model of a folder or a hub name on torch's meta device: every module, and no memory for them."""
    config = AutoConfig.from_pretrained(str(source), **{**NO_CODE, **source_kwargs})
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(
            config, trust_remote_code=source_kwargs.get("trust_remote_code") or False
        )


def vocabulary_modules(model: PreTrainedModel) -> list[str]:
    """Names of the modules that hold a row per token: the embedding and the head."""
    tables = (model.get_input_embeddings(), model.get_output_embeddings())
    return [name for name, module in model.named_modules() if any(module is table for table in tables)]


def linear_layers(model: PreTrainedModel) -> list[str]:
    """Names of the layers that an adapter can be put on, embedding and head apart."""
    tables = vocabulary_modules(model)
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear | Conv1D) and name not in tables
    ]
