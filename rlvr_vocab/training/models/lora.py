"""LoRA adapters over whole or quantized layers, with the rows of the reasoning vocabulary that train beside them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MethodType
from typing import Any, Literal

import torch
from peft import LoraConfig, PeftConfig, PeftModel
from peft.tuners.lora import LoraLayer
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from rlvr_vocab.device import weights_dtype
from rlvr_vocab.errors import UserError
from rlvr_vocab.training.settings import Lora
from rlvr_vocab.vocab.adapter import (
    ADAPTER,
    REFERENCE,
    TrainedRows,
    add_reference_rows,
    add_trained_rows,
    first_trained_row,
    follow_the_active_adapter,
    train_differences,
)
from rlvr_vocab.vocab.copied_rows import copied_rows_of
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.weights import NO_CODE

Bits = Literal[4, 8]


def adapter_config(config: PeftConfig | Lora) -> PeftConfig:
    """PEFT's configuration of an adapter; one of PEFT's own stays as it is."""
    if not isinstance(config, Lora):
        return config
    targets = config.target_modules
    return LoraConfig(
        r=config.r,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
        task_type="CAUSAL_LM",
    )


def complete_adapter(
    model: PeftModel, train_rows: str, layout: VocabLayout, initial_model: Path, *, given: bool = False
) -> None:
    """Add the rows that train beside an adapter; make it float32, with its dropout, and mergeable without loss.

    TRL makes the adapter of a quantized model bfloat16, which rounds small updates away, and disables its dropout.
    With `given` the adapter is the user's: its dtype stays, and it may have its rows from an earlier trainer.
    """
    held, first = copied_rows_of(model), first_trained_row(train_rows, layout)
    if model.active_peft_config.is_prompt_learning:
        raise UserError("prompt-learning adapters are not supported: their prompts have no ids, and so no region")
    if layout.size and not (ADAPTER in model.active_adapters and isinstance(model.active_peft_config, LoraConfig)):
        raise UserError(f"adapter {model.active_adapter}: beside reasoning tokens it must be LoRA named {ADAPTER}")
    if held is not None and train_rows == "all":
        raise UserError(
            f"train_rows=all with reasoning_rank={layout.reasoning_rank}: rows train whole or as differences"
        )
    if held is not None and train_rows == "reasoning":
        train_differences(held)
    elif held is None and first is not None and not isinstance(model.get_input_embeddings(), TrainedRows):
        add_trained_rows(model, first)
    if layout.size:
        follow_the_active_adapter(model)
        model.peft_config[ADAPTER].base_model_name_or_path = str(initial_model)  # the base that has the copies
    merge_exactly(model)
    compute_one_policy(model)
    for parameter in model.parameters():
        if parameter.requires_grad and not given:
            parameter.data = parameter.data.float()
    for name, dropout in _dropouts(model):
        dropout.p = model.peft_config[name].lora_dropout


@contextmanager
def unrounded(model: Any) -> Iterator[None]:
    """Keeps the weights of a given adapter on quantized layers, which TRL's constructor would round to bfloat16."""
    trained = [each for each in model.parameters() if each.requires_grad] if quantized_layers(model) else []
    kept = [each.data for each in trained]
    yield
    for each, data in zip(trained, kept, strict=True):
        each.data = data.to(each.device)


def renew_reference(model: PeftModel, beta: float) -> None:
    """Prepare a given adapter for TRL's reference, a copy of it as it is now, in place of one of an earlier trainer."""
    if REFERENCE in model.peft_config:
        model.delete_adapter(REFERENCE)
        model.set_adapter(ADAPTER)
    if beta:
        add_reference_rows(model)


def merge_exactly(model: PeftModel) -> None:
    """Let a model merge its adapter, as for vLLM at every step, and restore the frozen weights to the bit.

    PEFT subtracts the update again, which rounds: in bfloat16 frozen weights and reference would drift.
    """
    tuner: Any = model.base_model
    layers = _lora_layers(model)
    kept: list[torch.Tensor] = []

    def merge(*args: Any, **kwargs: Any) -> None:
        if not kept:
            weights = (layer.get_base_layer().weight for layer in layers)
            # In main memory; a quantized weight itself, which merging replaces.
            kept.extend(each.data.to("cpu", copy=True) if each.is_floating_point() else each for each in weights)
        tuner.merge_adapter(*args, **kwargs)

    def unmerge() -> None:
        tuner.unmerge_adapter()
        for layer, weight in zip(layers, kept, strict=True):
            base = layer.get_base_layer()
            if isinstance(weight, nn.Parameter):
                base.weight = weight
            else:
                base.weight.data.copy_(weight)

    setattr(model, "merge_adapter", merge)  # noqa: B010  # found on the tuner by PEFT, not declared
    setattr(model, "unmerge_adapter", unmerge)  # noqa: B010


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Inside the block adapters have no dropout."""
    active = [dropout for _, dropout in _dropouts(model) if dropout.training]
    for dropout in active:
        dropout.eval()
    try:
        yield
    finally:
        for dropout in active:
            dropout.train()


def has_dropout(model: nn.Module) -> bool:
    """Whether an adapter of the model has active dropout."""
    return any(dropout.training and dropout.p > 0 for _, dropout in _dropouts(model))


def _dropouts(model: nn.Module) -> list[tuple[str, nn.Dropout]]:
    """Those of LoRA layers, each with the name of its adapter."""
    named = [each for layer in _lora_layers(model) for each in layer.lora_dropout.items()]
    return [(name, dropout) for name, dropout in named if isinstance(dropout, nn.Dropout)]


def _lora_layers(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, LoraLayer)]


def quantization_config(bits: Bits, initial_model: str | Path, dtype: str, use_cpu: bool) -> BitsAndBytesConfig:
    """4 bit: NF4 with double quantization (QLoRA, arXiv 2305.14314); 8 bit: LLM.int8() (arXiv 2208.07339).

    4-bit weights are multiplied in `dtype` where the machine computes it; 8-bit ones follow their inputs.
    """
    return BitsAndBytesConfig(
        load_in_8bit=bits == 8,
        load_in_4bit=bits == 4,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=weights_dtype(getattr(torch, dtype), use_cpu),
        llm_int8_skip_modules=vocabulary_modules(skeleton(initial_model)),  # Transformers only guesses the head
    )


def compute_one_policy(model: nn.Module) -> None:
    """Make quantized layers compute the same when they sample, score and are evaluated.

    8 bit: LLM.int8() rounds inputs by their whole batch (docs/lora.md); here they are not rounded. 4 bit: on a CPU with
    AVX512-BF16, evaluation mode repacks the weights for a kernel without a backward pass, so the layers stay in
    training mode.
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
    """The model of a folder or a hub name on torch's meta device, without memory."""
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
