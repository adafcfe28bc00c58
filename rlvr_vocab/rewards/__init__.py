"""Reward functions: TRL-shaped callables that need neither torch nor a trainer."""

from rlvr_vocab.rewards.accuracy import accuracy

__all__ = ["accuracy"]
