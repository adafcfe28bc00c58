"""model.model_kwargs.attn_implementation, and what it needs."""

from collections.abc import Mapping
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.exp import environment_checks
from rlvr_vocab.nearest import nearest_and_all

KEY = "model.model_kwargs.attn_implementation"
# Those of Transformers that a model can be trained with, by the package that each needs.
FLASH_PACKAGES = {
    "flash_attention_2": "flash_attn",
    "flash_attention_3": "flash_attn_interface",
    "flash_attention_4": "flash_attn",
}
ATTENTIONS = ("sdpa", "eager", "flex_attention", *FLASH_PACKAGES)


def check_attention(name: Any) -> None:
    """Refuses a name that Transformers does not know, and one whose package is not there.

    A name with a slash is a kernel of the hub, which the package kernels fetches; it stands in for flash-attn too.
    """
    if name is None:
        return
    if not isinstance(name, str) or ("/" not in name and name not in ATTENTIONS):
        raise UserError(f"{KEY}={name}: no such attention{nearest_and_all(str(name), ATTENTIONS)}")
    package = "kernels" if "/" in name else FLASH_PACKAGES.get(name)
    if package is None or any(environment_checks.installed(each) for each in (package, "kernels")):
        return
    distribution = package.replace("_", "-")
    raise UserError(f"{KEY}={name}: {distribution} is not installed; install it, or set {KEY}=sdpa")


def check_attention_precision(name: Any, dtype: str, grpo: Mapping[str, Any]) -> None:
    """Flash attention computes in 16 bits alone: the weights have to be, or autocast."""
    if name in FLASH_PACKAGES and dtype == "float32" and not (grpo.get("bf16") or grpo.get("fp16")):
        raise UserError(f"{KEY}={name} computes in 16 bits: set training.bf16=true, or {KEY}=sdpa")
