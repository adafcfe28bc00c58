"""Parts of an assistant's turn: its text, the answer after the thinking, its tokens or words."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from rlvr_vocab.errors import UserError

Tags = Annotated[tuple[str, str], Field(strict=False)]  # a list in a configuration
Unit = Literal["tokens", "words", "characters"]
THINK_TAGS = ("<think>", "</think>")
# Why a made-up turn says nothing about a reward for length.
COUNTS_SAMPLED = "it counts what a model samples, and nobody sampled a made-up turn"


def turn_text(completion: Any) -> str:
    """The assistant's text in a completion: a string, or a list of messages, those of tools and users left out."""
    if isinstance(completion, str):
        return completion
    messages = [message for message in completion or () if message.get("role", "assistant") == "assistant"]
    return "\n".join(_content_text(message.get("content")) for message in messages)


def _content_text(content: Any) -> str:
    if isinstance(content, list):  # parts, of which some are text
        return "".join(part if isinstance(part, str) else part.get("text") or "" for part in content)
    return content or ""


def after_thinking(turn: str, think_tags: tuple[str, str] = THINK_TAGS) -> str | None:
    """The part of a turn after its last thinking; None where the thinking was never closed.

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
    reward: str, completions: Sequence[Any], completion_ids: Sequence[Sequence[int]] | None, unit: Unit
) -> list[Sequence[Hashable]]:
    """Each completion as a sequence of its sampled tokens, its words in lower case, or its characters.

    >>> parts("length", ["One two"], None, "words")
    [['one', 'two']]
    """
    if unit == "tokens":
        return list(sampled_ids(reward, completion_ids))
    texts = [turn_text(completion) for completion in completions]
    return [text.lower().split() for text in texts] if unit == "words" else list(texts)


def sampled_ids(reward: str, completion_ids: Sequence[Sequence[int]] | None) -> Sequence[Sequence[int]]:
    """The ids sampled for each completion; raises UserError where they are not known."""
    if completion_ids is None:
        raise UserError(f"{reward}: completion_ids is missing: it counts sampled tokens, which a trainer passes")
    return completion_ids
