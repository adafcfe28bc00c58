"""The shape of a model without its weights: what its modules are called, read from its configuration alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from rlvr_vocab.vocab.read_as_data import NO_CODE


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
