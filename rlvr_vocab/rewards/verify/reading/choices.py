r"""Reads the letter of a multiple-choice answer: `C`, `(C)`, `\text{Option C}`, `\textbf{(C)}\ 12`."""

from __future__ import annotations

import re

from rlvr_vocab.rewards.verify.reading.readings import Choice, Expression, Number, Text
from rlvr_vocab.rewards.verify.reading.relations import ReadPart

_LETTER = re.compile(r"(?:(?:[Oo]ption|[Cc]hoice|[Aa]nswer)[: ]*)?\(?(?P<letter>[A-J])\)?[.):]?")
# A bare letter in brackets may be a factor too, so what follows it must begin like a new thing.
_LABELLED = re.compile(
    r"(?:\\text\{ *\(?(?P<text>[A-J])[.):]+ *\} *|\\text\{ *(?P<bold>[A-J]) *\}[.):] ?"
    r"|\((?P<bracketed>[A-J])\) ?(?=[0-9A-Za-z\\])|(?P<marked>[A-J])[.):] ?(?=[0-9A-Za-z\\]))(?P<content>.+)",
    re.DOTALL,
)
# Words that take a letter back, or put another beside it.
_SAYS_MORE = re.compile(
    r"(?:^| )(?:[A-J]|not?|nor|neither|none|both|all|or|and|is(?:n't)?|was|wrong|incorrect|false|right|only|but|never)"
    r"(?: |$)"
)


def read_letter(text: str) -> Choice | None:
    """The choice that a cleaned text consists of."""
    alone = _LETTER.fullmatch(text)
    return Choice(alone["letter"]) if alone else None


def read_labelled(text: str, read_part: ReadPart) -> Choice | None:
    """The choice at the head of what it stands for; None where what follows says more than that."""
    found = _LABELLED.fullmatch(text)
    if found is None:
        return None
    content = read_part(found["content"])
    says_no_more = isinstance(content, Number | Expression) or (
        isinstance(content, Text) and re.search("[A-Za-z0-9]", content.words) and not _SAYS_MORE.search(content.words)
    )
    letter = found["text"] or found["bold"] or found["bracketed"] or found["marked"]
    return Choice(letter, content) if says_no_more else None
