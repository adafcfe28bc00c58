"""Where the final answer stands in an assistant's turn: after the thinking, in the last box."""

from __future__ import annotations

import re
from typing import Any

THINK_TAGS = ("<think>", "</think>")
_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])[ ]{0,9}")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_TOKEN = re.compile(r"-?[0-9]+(?:[.,/][0-9]+)*|[A-Za-z]+|\\[A-Za-z]+")


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


def last_box(text: str) -> str | None:
    r"""The contents of the last `\boxed{…}`; None without one, or where the last one is not closed.

    A box that was cut off takes back the ones before it: what stands in those is not the final answer.

    >>> last_box(r"\boxed{41}, no: \boxed{\frac{1}{2}}.")
    '\\frac{1}{2}'
    >>> last_box(r"\boxed{41}, no: \boxed{4") is None
    True
    """
    start = None
    for box in _BOX.finditer(text):
        start = box.end()
    return None if start is None else _contents(text, start)


def _contents(text: str, start: int) -> str | None:
    """What the box holds whose contents begin at `start`, None where it is not closed."""
    if start == len(text):
        return None
    if text[start] != "{":
        return _one_token(text, start)
    depth = 0
    for brace in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return text[start + 1 : brace.start()]
    return None


def boxes_between(text: str) -> tuple[list[str], list[str]]:
    r"""The contents of all boxes, and what stands before, between and behind them; no box where one is not closed.

    >>> boxes_between(r"It is \boxed{1} or \boxed{2}.")
    (['1', '2'], ['It is ', ' or ', '.'])
    """
    boxes, between, end = [], [], 0
    for box in _BOX.finditer(text):
        if box.start() < end:
            continue  # a box within a box
        contents = _contents(text, box.end())
        if contents is None:
            return [], [text]
        boxes.append(contents)
        between.append(text[end : box.start()])
        end = box.end() + len(contents) + 2 * (text[box.end()] == "{")
    return boxes, [*between, text[end:]]


def _one_token(text: str, start: int) -> str:
    r"""`\boxed 5` boxes what TeX takes as one token; plain text means the whole number or word."""
    found = _TOKEN.match(text, start)
    return found[0] if found else text[start]
