"""GRPO with verifiable rewards, and with an optional vocabulary for thinking."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr_vocab.rewards.reward import after_thinking
    from rlvr_vocab.training.arguments import GRPOConfig
    from rlvr_vocab.training.settings import Lora
    from rlvr_vocab.training.trainer import RegionGRPOTrainer
    from rlvr_vocab.vocab.expand import Expansion, expand
    from rlvr_vocab.vocab.merge import merge_adapter
    from rlvr_vocab.vocab.sampling import RegionLogitsProcessor

__version__ = "0.1.0"
__all__ = [
    "Expansion",
    "GRPOConfig",
    "Lora",
    "RegionGRPOTrainer",
    "RegionLogitsProcessor",
    "__version__",
    "after_thinking",
    "expand",
    "merge_adapter",
]

# Imported when asked for: `import rlvr_vocab` alone loads neither torch nor Transformers.
_HOMES = {
    "Expansion": "rlvr_vocab.vocab.expand",
    "GRPOConfig": "rlvr_vocab.training.arguments",
    "Lora": "rlvr_vocab.training.settings",
    "RegionGRPOTrainer": "rlvr_vocab.training.trainer",
    "RegionLogitsProcessor": "rlvr_vocab.vocab.sampling",
    "after_thinking": "rlvr_vocab.rewards.reward",
    "expand": "rlvr_vocab.vocab.expand",
    "merge_adapter": "rlvr_vocab.vocab.merge",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
