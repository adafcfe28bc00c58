"""A LoRA adapter on a run's model, with the rows of the reasoning vocabulary that train beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from peft import LoraConfig, PeftModel
from peft.tuners.lora import LoraLayer
from torch import nn

from rlvr_vocab.errors import UserError
from rlvr_vocab.training.models.quantization import compute_one_policy
from rlvr_vocab.training.settings import Lora
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.peft.trained_difference import train_differences
from rlvr_vocab.vocab.peft.trained_rows import add_trained_rows, first_trained_row
from rlvr_vocab.vocab.reasoning_rows import held_rows

# Fields of PEFT's configuration that mean something here.
_OF_LORA_CONFIG = ("r", "lora_alpha", "lora_dropout", "target_modules", "task_type")


def lora_config(lora: Lora) -> LoraConfig:
    """PEFT's configuration of the adapter."""
    targets = lora.target_modules if isinstance(lora.target_modules, str) else list(lora.target_modules)
    return LoraConfig(
        r=lora.r,
        lora_alpha=lora.lora_alpha,
        target_modules=targets,
        lora_dropout=lora.lora_dropout,
        task_type="CAUSAL_LM",
    )


def as_lora(config: LoraConfig | Lora | None) -> Lora | None:
    """An adapter as PEFT describes it, as ours, with the rows of the reasoning vocabulary beside it.

    Raises:
        UserError: it sets something that ours has not.
    """
    if config is None or isinstance(config, Lora):
        return config
    usual, given = LoraConfig().to_dict(), config.to_dict()
    others = [name for name in given if given[name] != usual[name] and name not in _OF_LORA_CONFIG]
    if others:
        raise UserError(
            f"peft_config: {others[0]}={given[others[0]]} is not supported; {', '.join(_OF_LORA_CONFIG)} are"
        )
    targets = config.target_modules
    return Lora(
        r=config.r,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules="all-linear" if targets in (None, "all-linear") else tuple(sorted(targets)),
    )


def complete_adapter(model: PeftModel, lora: Lora, layout: VocabLayout) -> None:
    """Bring an adapter to what training asks for: rows beside it, float32, its own dropout, one arithmetic.

    TRL makes the adapter of a quantized model bfloat16, in which small updates round away, and switches every dropout
    of a model off, where ours is the base model's alone.
    """
    held, first = held_rows(model), first_trained_row(lora.train_rows, layout)
    if held is not None and lora.train_rows == "all":
        raise UserError(
            f"train_rows=all with reasoning_rank={layout.reasoning_rank}: rows beside an adapter train whole or as "
            "differences from their sources"
        )
    if held is not None and lora.train_rows == "reasoning":
        train_differences(held)
    elif held is None and first is not None:
        add_trained_rows(model, first)
    ExactMerge(model)
    compute_one_policy(model)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    for dropout in _dropouts(model):
        dropout.p = lora.lora_dropout


class ExactMerge:
    """Lets a model's adapter be merged for vLLM at every step and taken out again without a trace.

    PEFT adds the update to a weight and subtracts it again, which rounds twice: in bfloat16 the frozen weights, and
    with them the reference policy, would wander off step by step.
    """

    def __init__(self, model: PeftModel) -> None:
        self._tuner: Any = model.base_model
        self._layers: list[Any] = [module for module in model.modules() if isinstance(module, LoraLayer)]
        self._kept: list[torch.Tensor] = []
        setattr(model, "merge_adapter", self.merge)  # noqa: B010  # found on the tuner by PEFT, not declared
        setattr(model, "unmerge_adapter", self.unmerge)  # noqa: B010

    def merge(self, *args: Any, **kwargs: Any) -> None:
        if not self._kept:
            self._kept = [_kept(layer.get_base_layer().weight) for layer in self._layers]
        self._tuner.merge_adapter(*args, **kwargs)

    def unmerge(self) -> None:
        self._tuner.unmerge_adapter()
        for layer, kept in zip(self._layers, self._kept, strict=True):
            base = layer.get_base_layer()
            if isinstance(kept, nn.Parameter):
                base.weight = kept
            else:
                base.weight.data.copy_(kept)


def _kept(weight: nn.Parameter) -> torch.Tensor:
    """What a weight is restored from: a copy in main memory, or, where merging puts another in its place, itself."""
    return weight.data.to("cpu", copy=True) if weight.is_floating_point() else weight


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Inside the block adapters drop nothing: samples, and what updates are compared with, are the whole policy's."""
    active = [dropout for dropout in _dropouts(model) if dropout.training]
    for dropout in active:
        dropout.eval()
    try:
        yield
    finally:
        for dropout in active:
            dropout.train()


def has_dropout(model: nn.Module) -> bool:
    """Whether a pass through the model as it stands would drop something of an adapter."""
    return any(dropout.training and dropout.p > 0 for dropout in _dropouts(model))


def _dropouts(model: nn.Module) -> list[nn.Dropout]:
    layers = [module for module in model.modules() if isinstance(module, LoraLayer)]
    return [each for layer in layers for each in layer.lora_dropout.values() if isinstance(each, nn.Dropout)]
