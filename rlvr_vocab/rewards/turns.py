"""What reward functions read of an assistant's turn: its text, what follows the thinking, its tokens or words."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.parameters import one_of

THINK_TAGS = ("<think>", "</think>")
# Why a made-up turn says nothing to a reward for length.
COUNTS_SAMPLED = "it counts what a model samples, and nobody sampled a made-up turn"
UNITS = ("tokens", "words", "characters")


def turn_text(completion: Any) -> str:
    """What the assistant says in a completion: a string, or a list of messages, those of tools and users left out."""
    if isinstance(completion, str):
        return completion
    said = [message for message in completion or () if message.get("role", "assistant") == "assistant"]
    return "\n".join(_content_text(message.get("content")) for message in said)


def _content_text(content: Any) -> str:
    """The text of a message, which holds text, nothing, or a list of parts of which some are text."""
    if isinstance(content, list):
        return "".join(part if isinstance(part, str) else part.get("text") or "" for part in content)
    return content or ""


def after_thinking(turn: str, think_tags: tuple[str, str] = THINK_TAGS) -> str | None:
    """What a turn says after its last thinking; None where the thinking was never closed.

    >>> after_thinking("<think>6 * 7</think>It is 42.")
    'It is 42.'
    >>> after_thinking("<think>6 * 7 =") is None
    True
    """
    opened, closed = think_tags
    start, end = turn.rfind(opened), turn.rfind(closed)
    if start > end:
        return None
    return turn if end < 0 else turn[end + len(closed) :]


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
