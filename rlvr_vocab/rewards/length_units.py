"""What a completion is counted in: the tokens that were sampled, or the words or characters they read as."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.parameters import one_of
from rlvr_vocab.rewards.turns import turn_text

UNITS = ("tokens", "words", "characters")


def parts(
    reward: str, completions: Sequence[Any], completion_ids: Sequence[Sequence[int]] | None, unit: str
) -> list[Sequence[Hashable]]:
    """Each completion as a sequence of its tokens, words or characters.

    Tokens are those that were sampled, without what a chat template prefilled; words (in lower case) and characters
    are those of the completion as it was handed over.

    Raises:
        UserError: an unknown unit, or tokens without `completion_ids`.

    Example:
        >>> parts("length", ["One two"], None, "words")
        [['one', 'two']]
    """
    one_of(reward, "unit", unit, UNITS)
    if unit == "tokens":
        return list(sampled_ids(reward, completion_ids))
    texts = [turn_text(completion) for completion in completions]
    return [text.lower().split() for text in texts] if unit == "words" else list(texts)


def sampled_ids(reward: str, completion_ids: Sequence[Sequence[int]] | None) -> Sequence[Sequence[int]]:
    """The ids that were sampled for each completion, which a trainer passes to every reward function.

    Raises:
        UserError: they were not passed.
    """
    if completion_ids is None:
        raise UserError(f"{reward}: completion_ids is missing: it counts sampled tokens, and only a trainer knows them")
    return completion_ids
