"""What this machine must have before a run starts: a W&B login, optional packages."""

import netrc
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from rlvr_vocab.errors import UserError
from rlvr_vocab.exp.typed_sections import LoggingSettings

WANDB_URL = "https://api.wandb.ai"
OFFLINE_MODES = ("offline", "disabled", "dryrun")


def check_wandb_login(logging: LoggingSettings) -> None:
    """Off a terminal nobody can answer W&B's question for a key: the run would die with the model loaded."""
    offline = {logging.mode, os.environ.get("WANDB_MODE")} & set(OFFLINE_MODES)
    if logging.report_to == "none" or offline or has_wandb_key():
        return
    if sys.stdin.isatty() and sys.stdout.isatty():
        return
    raise UserError(
        "not logged in to Weights & Biases: set WANDB_API_KEY, or run `wandb login`, "
        "or add logging=offline or logging=disabled"
    )


def has_wandb_key() -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlparse(os.environ.get("WANDB_BASE_URL") or WANDB_URL).hostname or ""
    files = [os.environ.get("NETRC"), *(str(Path.home() / name) for name in (".netrc", "_netrc"))]
    return any(netrc_has(Path(file), host) for file in files if file)


def netrc_has(path: Path, host: str) -> bool:
    if not path.is_file():
        return False
    try:
        return host in netrc.netrc(str(path)).hosts
    except (netrc.NetrcParseError, OSError):
        return False  # a file that W&B could not read either


def installed(package: str) -> bool:
    return find_spec(package) is not None


def check_optional_packages(grpo: Mapping[str, Any], reasoning: bool) -> None:
    """Options that need a package which is not always there, or do not go with a reasoning vocabulary."""
    if grpo.get("use_vllm") and reasoning:
        raise UserError("training.use_vllm=true: vLLM rollouts with a reasoning vocabulary are not in this version")
    if grpo.get("use_transformers_continuous_batching") and reasoning:
        raise UserError(
            "training.use_transformers_continuous_batching=true: it samples past the region policy; "
            "set it to false, or model.reasoning_vocab_size=0"
        )
    if grpo.get("use_vllm") and not installed("vllm"):
        raise UserError("training.use_vllm=true: vllm is not installed; install it, or set training.use_vllm=false")
    optim = grpo.get("optim") or ""
    if needs_bitsandbytes(optim) and not installed("bitsandbytes"):
        raise UserError(
            f"training.optim={optim}: bitsandbytes is not installed; "
            "install it, or set training.optim=adamw_torch_fused"
        )


def needs_bitsandbytes(optim: str) -> bool:
    # The 8-bit optimizers of torchao, GaLore and the like have packages of their own.
    return optim.startswith(("paged_", "rmsprop_bnb", "ademamix", "lion_")) or optim in (
        "adamw_8bit",
        "adamw_bnb_8bit",
    )
