"""Sharded training under FSDP2 and DeepSpeed: refusals, precision, and the devices of models and weights."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy
from transformers import Trainer
from trl.models import prepare_deepspeed, prepare_fsdp

from rlvr_vocab.errors import UserError


def require_sharding(state: AcceleratorState) -> None:
    """UserError where FSDP was asked for on a CPU: accelerate would train whole models."""
    if os.environ.get("ACCELERATE_USE_FSDP") == "true" and state.num_processes > 1 and not is_sharded(state):
        raise UserError("FSDP shards a model between GPUs, not on a CPU: take accelerate_configs/ddp.yaml")


def is_sharded(state: AcceleratorState) -> bool:
    """Whether no process holds the whole model."""
    return state.distributed_type in (DistributedType.FSDP, DistributedType.DEEPSPEED)


def on_its_device(trainer: Trainer) -> Any:
    """The model of a trainer, moved to its device if FSDP2 has left it in main memory."""
    model = trainer.model
    waits = trainer.accelerator.distributed_type == DistributedType.FSDP and not isinstance(model, FSDPModule)
    return model.to(trainer.accelerator.device) if waits else model


def shard_like_policy(model: Any, accelerator: Accelerator) -> Any:
    """Place or shard a frozen model like the one that trains."""
    if accelerator.distributed_type == DistributedType.DEEPSPEED:
        return prepare_deepspeed(model, accelerator)
    if accelerator.distributed_type == DistributedType.FSDP:
        return prepare_fsdp(model, accelerator)
    return model.to(accelerator.device)


def keep_float32(state: AcceleratorState) -> None:
    """Keep outputs of sharded models in their own type, and sums of gradients in float32.

    Accelerate would round both to bfloat16: a log-probability of -8 by up to 0.03.
    """
    plugin: Any = getattr(state, "fsdp_plugin", None)
    policy = getattr(plugin, "mixed_precision_policy", None)
    if isinstance(policy, MixedPrecisionPolicy):
        plugin.mixed_precision_policy = replace(policy, reduce_dtype=torch.float32, output_dtype=None)


def without_tied_copies(model: Any, state_dict: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """A gathered state dict with tied weights once, under the name that `save_pretrained` writes."""
    if state_dict is None:
        return None
    tied = getattr(model, "all_tied_weights_keys", {})
    return {name: weight for name, weight in state_dict.items() if tied.get(name) not in state_dict}


def require_same_sharding(checkpoint: Path, state: AcceleratorState) -> None:
    """UserError where a checkpoint was sharded otherwise: its optimizer's state cannot be read."""
    whole, fsdp, zero3 = "no sharding (one process, or ddp.yaml)", "fsdp2.yaml", "deepspeed_zero3.yaml"
    files = {"optimizer.bin": fsdp, "zero_to_fp32.py": zero3}
    written = next((way for name, way in files.items() if (checkpoint / name).exists()), whole)
    ways = {DistributedType.FSDP: fsdp, DistributedType.DEEPSPEED: zero3}
    asked = ways.get(state.distributed_type, whole)
    if written != asked:
        raise UserError(
            f"{checkpoint} was written under {written}, and this run is started under {asked}: start it as before, or "
            "train anew with that checkpoint as the base model"
        )
