"""Reward functions: TRL-shaped callables that need neither torch nor a trainer."""

from rlvr_vocab.rewards.library import LIBRARY
from rlvr_vocab.rewards.library.accuracy import accuracy
from rlvr_vocab.rewards.library.answers import exact_match, multiple_choice, numeric
from rlvr_vocab.rewards.library.debug import debug
from rlvr_vocab.rewards.library.formats import boxed, think_format, xml_format, xml_tags
from rlvr_vocab.rewards.library.lengths import cosine_length, length, overlong, reasoning_share
from rlvr_vocab.rewards.library.style import diversity, forbidden_text, repetition
from rlvr_vocab.rewards.reward import Score, reward

accuracy_reward = accuracy  # TRL's name

__all__ = [
    "LIBRARY",
    "Score",
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
