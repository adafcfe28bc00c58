"""The device that a process computes on, the types that it has, and refusals of devices that cannot be used."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from rlvr_vocab.errors import UserError

_SPLITS = ("auto", "balanced", "balanced_low_0", "sequential")  # words of Transformers' device_map
_HIDDEN = ("", "-1", "NoDevFiles")  # values of CUDA_VISIBLE_DEVICES that show no GPU, the last by SLURM


def device_type(use_cpu: bool = False) -> str:
    """`cpu`, or the type of the accelerator that is here; UserError for an NVIDIA GPU that torch cannot use."""
    if use_cpu:
        return "cpu"
    with warnings.catch_warnings(action="ignore"):
        found = torch.accelerator.current_accelerator(check_available=True)
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in _HIDDEN
    if found is None and not hidden and any(Path("/dev").glob("nvidia[0-9]*")):
        try:
            torch.cuda.init()
        except (RuntimeError, AssertionError) as error:  # an old driver, a torch for CPUs alone
            raise UserError(
                f"torch {torch.__version__} cannot use the NVIDIA GPU that is here: {' '.join(str(error).split())}; "
                "install a newer driver, or a torch that is built for this one; to compute on the CPU, put "
                "CUDA_VISIBLE_DEVICES= in front of the command"
            ) from error
    return "cpu" if found is None else found.type


def has_bf16(use_cpu: bool) -> bool:
    """Whether the device of a run has bfloat16 instructions; torch before 2.11 reports them for no CPU."""
    device = device_type(use_cpu)
    if device == "cpu":
        capabilities: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
        return any(map(capabilities.get, ("avx512_bf16", "amx_bf16", "bf16")))  # the last of ARM
    return device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def weights_dtype(dtype: torch.dtype, use_cpu: bool = False) -> torch.dtype:
    """The dtype of weights that do not train: as asked, but float32 for bfloat16 on a machine without it."""
    return torch.float32 if dtype == torch.bfloat16 and not has_bf16(use_cpu) else dtype


def require_one_gpu(gpus: int, device_map: Any, *, copies: bool, key: str = "") -> None:
    """Refuse several GPUs in one process, except for a model without copies whose `device_map` splits it."""
    splits = len(set(device_map.values())) > 1 if isinstance(device_map, Mapping) else device_map in _SPLITS
    if splits and copies:
        raise UserError(
            f"{key}device_map={device_map}: it may put embedding and head on two devices, and copies need both on one; "
            "leave it out, and start a process for each GPU with accelerate launch (docs/distributed.md)"
        )
    if gpus > 1 and not splits:
        raise UserError(
            f"one process sees {gpus} GPUs: start one for each with accelerate launch --num_processes {gpus} "
            "(docs/distributed.md), or show it one with CUDA_VISIBLE_DEVICES=0 in front of the command"
        )
