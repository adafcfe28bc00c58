"""Unsloth as what loads the model: its kernels under the adapter, TRL's own trainer above it.

Unsloth also puts a GRPO trainer of its own in TRL's place, whose log-probs and loss are computed elsewhere than in the
one that `RegionGRPOTrainer` is. That trainer is taken out again: what a run computes and logs is the same under either
backend.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rlvr_vocab.errors import UserError

if TYPE_CHECKING:  # Unsloth has to be imported before these
    from peft import PeftModel

    from rlvr_vocab.training.lora import Lora

# The modules of TRL in which Unsloth replaces a class, and the class.
_REPLACED = (("trl.trainer.grpo_config", "GRPOConfig"), ("trl.trainer.grpo_trainer", "GRPOTrainer"))


@dataclass(frozen=True)
class Unsloth:
    """Arguments of `FastLanguageModel.from_pretrained`.

    Attributes:
        max_seq_length: tokens of the longest prompt and completion together.
        fast_inference: load a vLLM engine that shares the weights.
        max_lora_rank: largest rank that engine has room for.
        dtype: long name of the type of the weights that are not quantized.
    """

    max_seq_length: int = 2048
    fast_inference: bool = False
    max_lora_rank: int = 64
    use_gradient_checkpointing: Literal["unsloth"] | bool = "unsloth"
    load_in_4bit: bool = False
    dtype: str = "bfloat16"


def import_unsloth() -> None:
    """Import Unsloth, which has to come before transformers, peft and trl, and take its GRPO trainer out again.

    Raises:
        UserError: it does not run on this machine.
    """
    try:
        importlib.import_module("unsloth")
    except Exception as error:  # installed beside versions that it excludes, its import may end in anything
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"model.backend=unsloth: Unsloth does not run here ({reason}); set model.backend=transformers"
        ) from error
    trl, trl_trainer = importlib.import_module("trl"), importlib.import_module("trl.trainer")
    for module_name, class_name in _REPLACED:
        importlib.import_module(module_name)
        own = getattr(importlib.reload(sys.modules[module_name]), class_name)
        setattr(trl, class_name, own)
        setattr(trl_trainer, class_name, own)


def load_with_unsloth(initial_model: str | Path, unsloth: Unsloth, lora: Lora, seed: int) -> PeftModel:
    """The initial model with its adapter on, ready to train."""
    import torch
    from unsloth import FastLanguageModel

    model, _ = FastLanguageModel.from_pretrained(
        model_name=str(initial_model),
        max_seq_length=unsloth.max_seq_length,
        dtype=getattr(torch, unsloth.dtype),
        load_in_4bit=unsloth.load_in_4bit,
        fast_inference=unsloth.fast_inference,
        max_lora_rank=unsloth.max_lora_rank,
        use_gradient_checkpointing=unsloth.use_gradient_checkpointing,
        random_state=seed,
    )
    targets = lora.target_modules if isinstance(lora.target_modules, str) else list(lora.target_modules)
    adapted: PeftModel = FastLanguageModel.get_peft_model(
        model,
        r=lora.r,
        lora_alpha=lora.lora_alpha,
        target_modules=targets,
        lora_dropout=lora.lora_dropout,
        use_gradient_checkpointing=unsloth.use_gradient_checkpointing,
        random_state=seed,
        max_seq_length=unsloth.max_seq_length,
    )
    return adapted
