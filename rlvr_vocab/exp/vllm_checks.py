"""What `training.use_vllm=true` needs on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import packages_distributions, version
from typing import Any

from packaging.version import Version

from rlvr_vocab.errors import UserError
from rlvr_vocab.exp import environment_checks

OLDEST, NEWEST = Version("0.22.0"), Version("0.31.0")  # what TRL 1.16 supports


def check_vllm(grpo: Mapping[str, Any]) -> None:
    if not grpo.get("use_vllm"):
        return
    if not environment_checks.installed("vllm"):
        raise UserError("training.use_vllm=true: vllm is not installed; install it, or set training.use_vllm=false")
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
