"""What a run needs of this machine before it starts: a W&B login and optional packages."""

from __future__ import annotations

import os
import sys
from importlib.metadata import distributions, packages_distributions, version
from importlib.util import find_spec
from typing import Any

from packaging.version import Version

from rlvr_vocab.config.sections import LoggingSettings
from rlvr_vocab.errors import UserError
from rlvr_vocab.text import nearest_and_all

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
    from requests.utils import get_netrc_auth  # as W&B looks for it

    return get_netrc_auth(os.environ.get("WANDB_BASE_URL") or WANDB_URL) is not None


def installed(package: str) -> bool:
    return find_spec(package) is not None


_INSTALLED_BY = {"bitsandbytes": "pip install -e '.[quantization]'", "vllm": "pip install -e '.[vllm]'"}


def require(package: str, wanted_by: str, otherwise: str) -> None:
    """Raises UserError where an optional package is not there, with how to install it and what to do without it."""
    if not installed(package):
        name = package.replace("_", "-")
        command = _INSTALLED_BY.get(package, f"pip install {name}")
        raise UserError(f"{wanted_by}: {name} is not installed; install it with {command}, or {otherwise}")


ATTENTION = "model.model_kwargs.attn_implementation"
# Those of Transformers that a model can be trained with, by the distribution that each needs: two share a module.
FLASH_PACKAGES = {
    "flash_attention_2": "flash-attn",
    "flash_attention_3": "flash-attn-3",
    "flash_attention_4": "flash-attn-4",
}
ATTENTIONS = ("sdpa", "eager", "flex_attention", *FLASH_PACKAGES)


def check_attention(name: Any) -> None:
    """Refuses a name that Transformers does not know, and one whose package is not there.

    A name with a slash is a kernel of the hub, which the package kernels fetches; it stands in for flash-attn too.
    """
    if name is None:
        return
    if not isinstance(name, str) or ("/" not in name and name not in ATTENTIONS):
        raise UserError(f"{ATTENTION}={name}: no such attention{nearest_and_all(str(name), ATTENTIONS)}")
    package = "kernels" if "/" in name else FLASH_PACKAGES.get(name)
    if package is not None and not installed("kernels") and not any(distributions(name=package)):
        raise UserError(f"{ATTENTION}={name}: {package} is not installed; install it, or set {ATTENTION}=sdpa")


OLDEST, NEWEST = Version("0.22.0"), Version("0.31.0")  # what TRL 1.16 supports


def check_vllm() -> None:
    if not installed("vllm"):
        raise UserError(
            "training.use_vllm=true: vllm is not installed; see docs/vllm.md, or set training.use_vllm=false"
        )
    found = vllm_version()
    if found is not None and not OLDEST <= Version(found.base_version) <= NEWEST:
        raise UserError(
            f"training.use_vllm=true: vLLM {found} is installed, TRL works with {OLDEST} to {NEWEST}; "
            f"install one of those, or set training.use_vllm=false"
        )


def vllm_version() -> Version | None:
    """None where vLLM is importable without having been installed, from a source tree."""
    distributions = packages_distributions().get("vllm")
    return Version(version(distributions[0])) if distributions else None
