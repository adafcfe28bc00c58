"""TRL's configuration from plain arguments, with what this machine cannot do taken back."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch
from trl import GRPOConfig

from rlvr_vocab.errors import UserError

logger = logging.getLogger(__name__)


def grpo_config(arguments: Mapping[str, Any]) -> GRPOConfig:
    """`GRPOConfig(**arguments)`, in full precision, with a word, where the hardware has no bfloat16 of its own.

    Dropout is off unless asked for: a token would be sampled from one thinned network and scored by another.

    Raises:
        UserError: TRL or Transformers refuse the arguments; what they say, on one line.
    """
    arguments = {"disable_tqdm": True, "log_level": "error", "disable_dropout": True, **arguments}
    if arguments.get("bf16") and not _has_bf16():
        logger.warning("bf16: this machine computes bfloat16 slowly or not at all, training in float32")
        arguments["bf16"] = False
    try:
        return GRPOConfig(**arguments)
    except (ValueError, ImportError) as error:  # two fields that do not go together, a package that is missing
        raise UserError(" ".join(str(error).split())) from error


def _has_bf16() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
