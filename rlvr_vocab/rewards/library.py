"""The reward functions that a run can name."""

from __future__ import annotations

from rlvr_vocab.rewards.accuracy import accuracy
from rlvr_vocab.rewards.answers import exact_match, multiple_choice, numeric
from rlvr_vocab.rewards.debug import debug
from rlvr_vocab.rewards.formats import boxed, think_format, xml_format, xml_tags
from rlvr_vocab.rewards.lengths import cosine_length, length, overlong, reasoning_share
from rlvr_vocab.rewards.reward import RewardFunction
from rlvr_vocab.rewards.style import diversity, forbidden_text, repetition

LIBRARY: dict[str, RewardFunction] = {
    "accuracy": accuracy,
    "accuracy_reward": accuracy,  # TRL's name
    "boxed": boxed,
    "cosine_length": cosine_length,
    "debug": debug,
    "diversity": diversity,
    "exact_match": exact_match,
    "forbidden_text": forbidden_text,
    "length": length,
    "multiple_choice": multiple_choice,
    "numeric": numeric,
    "overlong": overlong,
    "reasoning_share": reasoning_share,
    "repetition": repetition,
    "think_format": think_format,
    "xml_format": xml_format,
    "xml_tags": xml_tags,
}
