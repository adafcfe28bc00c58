r"""Extracts the final answer of a text: its last box, or other places that the caller allows.

Adjacent last boxes, `\boxed{1}` and `\boxed{2}`, count as one box with `1; 2` if the words between them only join them.
In doubt only the last box counts, because the others may hold intermediate results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rlvr_vocab.verify.scanning import group_end

_MOST_BOXES = 200
# Without braces, `\boxed 5` boxes one token: a number, a macro, or a final letter. Before other words it is prose.
_TOKEN = re.compile(r"-?[0-9]+(?:[.,/][0-9]+)*|\\[A-Za-z]+|[A-Za-z](?=\s*(?:[$.,;]|\\[)\]]|\Z))")
_BOX = re.compile(rf"\\(?:boxed|fbox)(?![A-Za-z])\s{{0,9}}(?=\\?\{{|{_TOKEN.pattern})")
_EMPTY = re.compile(r"(?:\s|\.|…|\\l?dots)*")
_CORRECTION = re.compile(
    r"\b(?:wait|actually|hold on|oops|sorry|scratch that|correction|second thoughts?|i mean|i meant|rather|instead"
    r"|mistake|let me (?:correct|redo|fix|try)|(?:is|was|are|were) (?:wrong|incorrect)|not right)\b|\bno *[,.:;!-]",
    re.IGNORECASE,
)
_TAKEN_BACK = re.compile(
    r"\b(?:not|neither|(?<!the )only|but|however|except|unless|extraneous|invalid|wrong|incorrect|false|impossible"
    r"|nicht|keine?|nur|aber|falsch|ungültig|pas|mais|faux|pero|sauf|excepto"
    r"|reject\w*|discard\w*|exclud\w*|intermediate|latter|former|(?:first|last|other) (?:two|three|ones?))\b|n't\b",
    re.IGNORECASE,
)
_ANOTHER_ANSWER = re.compile(r"\b(?:final|the) answer\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?]\s|\n\s*\n")

_MARKUP = re.compile(r"\\text\{([^{}]*)\}|\\[()\[\],;: {}\\]|\\q?quad(?![A-Za-z])|\*\*|[$&]")
_BULLET = re.compile(r"(?:^|\n) *(?:[-*•] |\(?[0-9][.)]) *\Z")
_IN_BRACKETS = re.compile(r"[(\[][^()\[\]]*[)\]]")
_SEVERAL = re.compile(r",(?![0-9]{3}(?![0-9]))|;|\\pm|\b(?:and|or)\b")
_NAME = re.compile(r"(?<![\w)}\\+*/^-])([A-Za-z]|\\[a-z]+)(_\{?[0-9]\}?|[0-9])? *= *\Z")
_NUMBERED = re.compile(r"\b(?:case|solution|root|value|number) *[0-9]\b")
# The box after it is part of a point, a sum, a product or the like.
_PART_OF_MORE = re.compile(r"(?:(?<!\\)[(\[{+\-*/^|<>0-9]|\\[a-z]+) *\Z")
_COUNTING = frozenset(
    ("and", "or", "also", "well", "other", "another", "first", "second", "third", "fourth", "last", "remaining", "case")
).union(("und", "oder", "bzw", "sowie", "auch", "et", "ou", "aussi", "y", "o", "e"))
_JOINING = _COUNTING.union(("as", "the", "a", "an", "one", "is", "are", "solution", "root", "value", "number", "zero"))
_JOINING |= {"der", "die", "das", "ist", "sind", "le", "la", "el", "est", "es"}


@dataclass(frozen=True)
class _Words:
    """The words before a box, the name whose value it is, and whether it is a list item."""

    plain: str
    name: str
    is_bullet: bool

    @classmethod
    def of(cls, text: str) -> _Words:
        plain = _MARKUP.sub(lambda markup: markup[1] or " ", text)
        name = _NAME.search(plain)
        unnamed = plain[: name.start()] if name else plain
        without_bullet = _BULLET.sub(" ", unnamed)
        return cls(without_bullet, (name[1] + (name[2] or "")) if name else "", without_bullet != unnamed)

    @property
    def letter(self) -> str:
        """The name without its index: `x_1` and `x_2` are two values of `x`."""
        return self.name.partition("_")[0].rstrip("0123456789")

    def joins(self, previous: _Words) -> bool:
        """Whether the words only join the box to the previous one."""
        words = set(re.findall(r"[^\s.,;:]+", _NUMBERED.sub("case", self.plain.lower())))
        if words:
            return words <= _JOINING and not words.isdisjoint(_COUNTING)
        has_other_name = previous.name != self.name and "" not in (previous.name, self.name)
        return self.is_bullet or has_other_name or re.search("[,;]", self.plain) is not None


def boxed_answer(text: str) -> str | None:
    """The contents of the last box, or of all boxes after the last correction if they are adjacent."""
    answer = last_box(text)
    if not answer or not 2 <= boxes_opened(text) <= _MOST_BOXES:
        return answer
    return _side_by_side(*_boxes_between(text)) or answer


def _side_by_side(boxes: list[str], between: list[str]) -> str | None:
    """The boxes after the last correction as a list; None if they are not a list, or in doubt."""
    corrected = max((place for place, text in enumerate(between) if _CORRECTION.search(text)), default=0)
    boxes, between = boxes[corrected:], between[corrected:]
    if len(set(boxes)) < 2 or any(_SEVERAL.search(_IN_BRACKETS.sub("", box)) for box in boxes):
        return None
    sentence, behind = _SENTENCE_END.split(_CORRECTION.split(between[0])[-1])[-1], between[-1]
    if _TAKEN_BACK.search(sentence) or _TAKEN_BACK.search(behind) or _ANOTHER_ANSWER.search(behind):
        return None
    words = [_Words.of(sentence), *map(_Words.of, between[1:-1])]
    if _PART_OF_MORE.search(words[0].plain) or not all(after.joins(before) for before, after in pairwise(words)):
        return None
    letters = {each.letter for each in words}
    if len(letters) == 1 or letters == {"", words[0].letter}:
        return "; ".join(boxes)
    return None if "" in letters else "; ".join(f"{each.name}={box}" for each, box in zip(words, boxes, strict=True))


def last_box(text: str) -> str | None:
    r"""The contents of the last `\boxed{…}`; None without one, or where the last one is not closed.

    A truncated box invalidates the ones before it. An empty box, as mentioned in prose, does not.
    """
    starts = [box.end() for box in _BOX.finditer(text)]
    while starts:
        found = _contents(text, starts.pop())
        if found is None or not starts or not _EMPTY.fullmatch(found[0]):
            return None if found is None else found[0]
    return None


def _contents(text: str, start: int) -> tuple[str, int] | None:
    r"""The contents of a box, which begin at `start`, and its end; None where it is not closed.

    Escaped braces that belong to the box close it too, as in `\boxed\{5\}` and `\boxed{5\}}`.
    """
    if token := _TOKEN.match(text, start):
        return token[0], token.end()
    if text[start] == "\\":
        end = text.find(r"\}", start)
        return None if end < 0 else (text[start + 2 : end], end + 2)
    closed = group_end(text, start)
    if closed is None:
        return None
    inside = text[start + 1 : closed - 1]
    is_stray = inside.endswith(r"\}") and inside.count(r"\}") > inside.count(r"\{")
    return inside[:-2] if is_stray else inside, closed


def _boxes_between(text: str) -> tuple[list[str], list[str]]:
    """The contents of all boxes, and the texts before, between and after them; no boxes if one is not closed."""
    boxes, between, end = [], [], 0
    for box in _BOX.finditer(text):
        if box.start() < end:
            continue  # a box within a box
        found = _contents(text, box.end())
        if found is None:
            return [], [text]
        if _EMPTY.fullmatch(found[0]):
            continue
        between.append(text[end : box.start()])
        boxes.append(found[0])
        end = found[1]
    return boxes, [*between, text[end:]]


def boxes_opened(text: str) -> int:
    """The number of boxes that a text opens."""
    return len(_BOX.findall(text))


_PHRASE = re.compile(r"\banswer(?: to (?:the|this) (?:problem|question))?(?: is:?|:)[ \n]{0,3}", re.IGNORECASE)


def final_answer(text: str, sources: Sequence[str]) -> str | None:
    """The answer in the text after the thinking, by the first of `SOURCES` that holds one; None where none does.

    >>> final_answer("So the answer is 42.", ["box", "phrase"])
    '42'
    """
    found = (SOURCES[source](text) for source in sources)
    return next((answer for answer in found if answer is not None), None)


def answer_tag(text: str) -> str | None:
    """The contents of the last `<answer>…</answer>`, without a box inside it."""
    start = text.rfind("<answer>")
    end = text.find("</answer>", start)
    if start < 0 or end < 0:
        return None
    inside = text[start + len("<answer>") : end].strip()
    return boxed_answer(inside) or inside


def after_hashes(text: str) -> str | None:
    """The line after the last `####`, as GSM8K writes its answers."""
    _, marker, rest = text.rpartition("####")
    return rest.strip().partition("\n")[0].strip() if marker else None


def after_phrase(text: str) -> str | None:
    """The rest of the sentence after the last "the answer is" or "answer:"."""
    starts = [match.end() for match in _PHRASE.finditer(text)]
    if not starts:
        return None
    line = text[starts[-1] :].strip().partition("\n")[0].strip()
    return re.split(r"\.(?:\s|$)", line)[0].strip().strip("*").strip() or None


SOURCES: dict[str, Callable[[str], str | None]] = {
    "box": boxed_answer,
    "answer_tag": answer_tag,
    "hash": after_hashes,
    "phrase": after_phrase,
}
