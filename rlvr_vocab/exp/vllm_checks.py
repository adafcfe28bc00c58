"""What `training.use_vllm=true` needs on this machine, and what of it does not go with a reasoning vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import packages_distributions, version
from typing import Any

from packaging.version import Version

from rlvr_vocab.errors import UserError
from rlvr_vocab.exp import environment_checks

OLDEST, NEWEST = Version("0.22.0"), Version("0.31.0")  # what TRL 1.16 supports


def check_vllm(grpo: Mapping[str, Any], reasoning: bool) -> None:
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
    if reasoning and grpo.get("vllm_structured_outputs_regex") is not None:
        raise UserError(
            "training.vllm_structured_outputs_regex: it forbids tokens that the region policy allows, so that the "
            "sampled and the trained policy would differ; remove it, or set model.reasoning_vocab_size=0"
        )


def vllm_version() -> Version | None:
    """None where vLLM is importable without having been installed, from a source tree."""
    distributions = packages_distributions().get("vllm")
    return Version(version(distributions[0])) if distributions else None
