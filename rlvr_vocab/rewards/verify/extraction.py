"""Where a turn states its final answer: in its last box or boxes, where asked for in a tag, after `####` or words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from rlvr_vocab.rewards.verify.boxed_answer import boxed_answer

_PHRASE = re.compile(r"\banswer(?: to (?:the|this) (?:problem|question))?(?: is:?|:)[ \n]{0,3}", re.IGNORECASE)


def final_answer(text: str, sources: Sequence[str]) -> str | None:
    r"""The answer that a text states, looked for in one source after the other; None where none has one.

    Args:
        text: what follows the thinking.
        sources: names of `SOURCES`, the first that holds an answer decides.

    >>> final_answer("So the answer is 42.", ["box", "phrase"])
    '42'
    """
    found = (SOURCES[source](text) for source in sources)
    return next((answer for answer in found if answer is not None), None)


def answer_tag(text: str) -> str | None:
    """What stands in the last `<answer>…</answer>`, a box inside it taken off."""
    start = text.rfind("<answer>")
    end = text.find("</answer>", start)
    if start < 0 or end < 0:
        return None
    inside = text[start + len("<answer>") : end].strip()
    return boxed_answer(inside) or inside


def after_hashes(text: str) -> str | None:
    """The line after the last `####`, as GSM8K writes its answers."""
    _, marker, rest = text.rpartition("####")
    return _first_line(rest) if marker else None


def after_phrase(text: str) -> str | None:
    """What follows the last "the answer is" or "answer:", to the end of its sentence."""
    starts = [match.end() for match in _PHRASE.finditer(text)]
    if not starts:
        return None
    sentence = re.split(r"\.(?:\s|$)", _first_line(text[starts[-1] :]))[0]
    return sentence.strip().strip("*").strip() or None


def _first_line(text: str) -> str:
    stripped = text.strip()
    return stripped.split("\n", 1)[0].strip()


SOURCES: dict[str, Callable[[str], str | None]] = {
    "box": boxed_answer,
    "answer_tag": answer_tag,
    "hash": after_hashes,
    "phrase": after_phrase,
}
