"""Liger kernels and continuous batching: what they need, and what they would do to what is trained."""

from collections.abc import Mapping
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.exp import environment_checks


def check_kernels(grpo: Mapping[str, Any]) -> None:
    check_liger(grpo)
    check_continuous_batching(grpo)


def check_liger(grpo: Mapping[str, Any]) -> None:
    """Kernels of the layers go with any head; the fused loss would replace the forward that scores."""
    if not grpo.get("use_liger_kernel"):
        return
    chosen = grpo.get("liger_kernel_config") or {}
    for name in ("fused_linear_cross_entropy", "cross_entropy"):
        if chosen.get(name):
            raise UserError(
                f"training.liger_kernel_config.{name}=true: tokens are scored under the region policy, not by Liger's "
                "loss; leave it out"
            )
    if not environment_checks.installed("liger_kernel"):
        raise UserError(
            "training.use_liger_kernel=true: liger-kernel is not installed; install it with pip install liger-kernel, "
            "or set training.use_liger_kernel=false"
        )


def check_continuous_batching(grpo: Mapping[str, Any]) -> None:
    if not grpo.get("use_transformers_continuous_batching"):
        return
    half = next((name for name in ("bf16", "fp16") if grpo.get(name)), None)
    if half is not None:
        raise UserError(
            f"training.use_transformers_continuous_batching=true with training.{half}=true: to sample, TRL then casts "
            "the weights that train to 16 bits, where most small updates are lost; set one of them to false"
        )
