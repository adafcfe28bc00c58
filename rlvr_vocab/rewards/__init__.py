"""Reward functions: TRL-shaped callables that need neither torch nor a trainer."""

from rlvr_vocab.rewards.accuracy import accuracy
from rlvr_vocab.rewards.answers import exact_match, multiple_choice, numeric
from rlvr_vocab.rewards.debug import debug
from rlvr_vocab.rewards.formats import boxed, think_format, xml_format, xml_tags
from rlvr_vocab.rewards.lengths import cosine_length, length, overlong, reasoning_share
from rlvr_vocab.rewards.library import LIBRARY
from rlvr_vocab.rewards.reward import Mark, reward
from rlvr_vocab.rewards.style import diversity, forbidden_text, repetition

accuracy_reward = accuracy  # TRL's name

__all__ = [
    "LIBRARY",
    "Mark",
    "accuracy",
    "accuracy_reward",
    "boxed",
    "cosine_length",
    "debug",
    "diversity",
    "exact_match",
    "forbidden_text",
    "length",
    "multiple_choice",
    "numeric",
    "overlong",
    "reasoning_share",
    "repetition",
    "reward",
    "think_format",
    "xml_format",
    "xml_tags",
]
