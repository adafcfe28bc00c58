"""Reward functions: TRL-shaped callables that need neither torch nor a trainer.

Every function that a file of `library` declares can be imported from here, by each of its names.
"""

from typing import Any

from rlvr_vocab.rewards.reward import Score, reward

__all__ = ["Score", "reward"]


def __getattr__(name: str) -> Any:
    from rlvr_vocab.rewards.library import LIBRARY  # most commands need no reward

    if name not in LIBRARY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return LIBRARY[name]
