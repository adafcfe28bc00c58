"""Weights as they are loaded: finite, and in a type that the machine computes; and the generation configuration."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoConfig, GenerationConfig

from rlvr_vocab.device import has_bf16
from rlvr_vocab.errors import UserError
from rlvr_vocab.files import read_json_if_there
from rlvr_vocab.vocab.read_as_data import NO_CODE


def weights_dtype(dtype: torch.dtype, use_cpu: bool = False) -> torch.dtype:
    """The type to hold weights in that are not trained: as asked, but float32 for bfloat16 on a machine without it."""
    return torch.float32 if dtype == torch.bfloat16 and not has_bf16(use_cpu) else dtype


def stored_dtype(folder: Path) -> torch.dtype:
    """The type that a model folder says its weights have; float32 where it does not say."""
    config = AutoConfig.from_pretrained(str(folder), **NO_CODE)
    named = getattr(config.get_text_config(), "dtype", None) or getattr(config, "dtype", None) or torch.float32
    return named if isinstance(named, torch.dtype) else getattr(torch, named)


def refuse_not_finite(model: torch.nn.Module, name: str | Path) -> None:
    """Raises UserError where a weight is NaN or infinite: nothing can be sampled from such a model."""
    for tensor_name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and not tensor.is_meta and not tensor.sum(dtype=torch.float32).isfinite():
            raise UserError(f"{name} holds NaN or infinite weights, in {tensor_name}: take other weights")


_GENERATION = {
    "eos_token_id": (int, [int], None),
    "suppress_tokens": ([int], None),
    **dict.fromkeys(("bos_token_id", "pad_token_id", "max_new_tokens", "max_length"), (int, None)),
    **dict.fromkeys(("temperature", "top_p", "top_k", "repetition_penalty"), (int, float, None)),
}


def refuse_invalid_generation_config(folder: str | Path) -> None:
    """Raises UserError where a folder has a generation configuration that Transformers could not use."""
    path = Path(folder, "generation_config.json")
    content = read_json_if_there(path, _GENERATION) or {}
    try:
        GenerationConfig(**content)
        if (content.get("temperature") or 0) < 0:
            raise ValueError("temperature is below 0")
    except (TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path} is not valid: {' '.join(str(error).split())}") from error
