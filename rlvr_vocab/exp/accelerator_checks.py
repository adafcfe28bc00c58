"""What needs a GPU, asked of torch before anything is loaded."""

from __future__ import annotations

import logging

import torch

from rlvr_vocab.errors import UserError
from rlvr_vocab.exp.attention_checks import FLASH_PACKAGES
from rlvr_vocab.exp.attention_checks import KEY as ATTENTION
from rlvr_vocab.exp.typed_sections import RunSettings

logger = logging.getLogger(__name__)


def check_accelerator(settings: RunSettings) -> None:
    """Refuses what a machine without a GPU cannot do, and says what it does otherwise."""
    for stage in (settings, *(stage.run for stage in settings.stages)):
        if not _has_gpu(stage):
            _check_without_gpu(stage)


def _has_gpu(settings: RunSettings) -> bool:
    return torch.accelerator.is_available() and not settings.training.grpo.get("use_cpu")


def _check_without_gpu(settings: RunSettings) -> None:
    grpo, attention = settings.training.grpo, settings.model.model_kwargs.get("attn_implementation")
    if attention in FLASH_PACKAGES or attention == "flex_attention" or "/" in (attention or ""):
        # Flex attention computes on a CPU, but has no backward pass there.
        raise UserError(f"{ATTENTION}={attention} needs a GPU, and there is none here: set {ATTENTION}=sdpa")
    if grpo.get("use_liger_kernel"):
        raise UserError(
            "training.use_liger_kernel=true needs a GPU, and there is none here: set training.use_liger_kernel=false"
        )
    optim = grpo.get("optim") or ""
    if optim.startswith("paged_"):
        logger.warning("training.optim=%s: without a GPU there is nothing to page, its state stays in memory", optim)
