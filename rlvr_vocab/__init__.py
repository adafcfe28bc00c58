"""GRPO with verifiable rewards, and with an optional vocabulary for thinking."""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr_vocab.rewards.reward import after_thinking as after_thinking
    from rlvr_vocab.runs.python_run import RecordedTrainer
    from rlvr_vocab.tools.functions import guarded as guarded
    from rlvr_vocab.training.arguments import GRPOConfig as GRPOConfig
    from rlvr_vocab.training.settings import Lora as Lora
    from rlvr_vocab.vocab.expand import Expansion as Expansion
    from rlvr_vocab.vocab.expand import expand as expand
    from rlvr_vocab.vocab.merge import merge_adapter as merge_adapter
    from rlvr_vocab.vocab.sampling import RegionLogitsProcessor as RegionLogitsProcessor
    from rlvr_vocab.vocab.tokenizer import token_ids as token_ids

    GRPOTrainer = RecordedTrainer
    RegionGRPOTrainer = RecordedTrainer

__version__ = "0.1.0"
logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # PEFT imports it; it warns of other processors and rounding
# The public names, imported when they are used: `import rlvr_vocab` alone loads neither torch nor Transformers.
_MODULES = {
    "Expansion": "vocab.expand",
    "GRPOConfig": "training.arguments",
    "GRPOTrainer": "runs.python_run:RecordedTrainer",
    "Lora": "training.settings",
    "RegionGRPOTrainer": "runs.python_run:RecordedTrainer",
    "RegionLogitsProcessor": "vocab.sampling",
    "after_thinking": "rewards.reward",
    "expand": "vocab.expand",
    "guarded": "tools.functions",
    "merge_adapter": "vocab.merge",
    "token_ids": "vocab.tokenizer",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _MODULES[name].partition(":")
    return getattr(import_module(f"{__name__}.{module}"), attribute or name)


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
