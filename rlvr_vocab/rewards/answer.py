"""Where the final answer stands in an assistant's turn: after the thinking, in the last box."""

from __future__ import annotations

from typing import Any

THINK_TAGS = ("<think>", "</think>")
_BOX = "\\boxed{"


def turn_text(completion: Any) -> str:
    """The text of a completion, which TRL hands over as a string or as a list of messages with text or None."""
    if isinstance(completion, str):
        return completion
    return "".join(message.get("content") or "" for message in completion)


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


def last_box(text: str) -> str | None:
    r"""The contents of the last complete `\boxed{…}`, braces balanced; None without one.

    >>> last_box(r"\boxed{41}, no: \boxed{\frac{1}{2}}.")
    '\\frac{1}{2}'
    """
    start = text.rfind(_BOX)
    while start >= 0:
        depth = 1
        for position in range(start + len(_BOX), len(text)):
            depth += {"{": 1, "}": -1}.get(text[position], 0)
            if depth == 0:
                return text[start + len(_BOX) : position]
        start = text.rfind(_BOX, 0, start)
    return None
