"""Unsloth as what loads the model: its kernels under the adapter, TRL's own trainer above it.

Unsloth also puts a GRPO trainer of its own in TRL's place, whose log-probs and loss are computed elsewhere than in the
one that `RegionGRPOTrainer` is. That trainer is taken out again: what a run computes and logs is the same under either
backend.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr_vocab.errors import UserError
from rlvr_vocab.training.settings import Lora, UnslothSettings

if TYPE_CHECKING:  # Unsloth has to be imported before it
    from peft import PeftModel

# The modules of TRL in which Unsloth replaces a class, and the class.
_REPLACED = (("trl.trainer.grpo_config", "GRPOConfig"), ("trl.trainer.grpo_trainer", "GRPOTrainer"))


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


def load_with_unsloth(
    initial_model: str | Path, unsloth: UnslothSettings, lora: Lora, *, load_in_4bit: bool, dtype: str, seed: int
) -> PeftModel:
    """The initial model with its adapter on, ready to train.

    Args:
        dtype: long name of the type of the weights that are not quantized.
    """
    import torch
    from unsloth import FastLanguageModel

    shared = {
        "max_seq_length": unsloth.max_seq_length,
        "use_gradient_checkpointing": unsloth.use_gradient_checkpointing,
        "random_state": seed,
    }
    model, _ = FastLanguageModel.from_pretrained(
        model_name=str(initial_model),
        dtype=getattr(torch, dtype),
        load_in_4bit=load_in_4bit,
        fast_inference=unsloth.fast_inference,
        max_lora_rank=unsloth.max_lora_rank,
        **shared,
    )
    targets = lora.target_modules if isinstance(lora.target_modules, str) else list(lora.target_modules)
    adapted: PeftModel = FastLanguageModel.get_peft_model(
        model,
        r=lora.r,
        lora_alpha=lora.lora_alpha,
        target_modules=targets,
        lora_dropout=lora.lora_dropout,
        **shared,
    )
    return adapted
