r"""Reads which choice an answer names: `C`, `(C)`, `\textbf{(C)} 42`, "Option C", "The answer is C"."""

from __future__ import annotations

import re
from functools import lru_cache

_WRAPPING = re.compile(r"\\(?:text(?:bf|it|rm|sf)?|math(?:bf|rm|sf|it)|mbox|boxed|fbox|bf|rm)(?![A-Za-z])")
_DRESSING = str.maketrans("", "", "{}$*`\"'")
_WORD = re.compile(r"\b(?!(?:or|and)\b)[A-Za-z]{2}")
_LONGEST_NAMED = 300  # characters of a box, or of an answer that is nothing but a choice and its text
_SEARCHED = 20_000  # characters, from the end, in which a sentence that names the choice is looked for


def letters_named(text: str, letters: str) -> set[str]:
    r"""The different letters of `letters` that a box or a short answer names, lower case only where it stands alone.

    A letter with a mark (`(C)`, `C.`, `C:`) goes before one without, so that the text of a choice may follow it.

    >>> sorted(letters_named(r"\textbf{(C)} a dog", "ABCD")), sorted(letters_named("A or B", "ABCD"))
    (['C'], ['A', 'B'])
    """
    if len(text) > _LONGEST_NAMED:
        return set()
    plain, patterns = _undressed(text), _patterns(letters)
    alone = patterns.alone.fullmatch(plain)
    if alone:
        return {alone[1].upper()}
    marked = {first or second for first, second in patterns.marked.findall(plain)}
    rest = patterns.marked.sub(" ", plain)
    if marked and _WORD.search(rest):  # the text of the choice, whose letters name nothing
        return marked
    return marked | set(patterns.bare.findall(rest))


def letters_concluded(answer: str, letters: str) -> set[str]:
    """The different letters that the sentences of an answer without a box settle on.

    >>> letters_concluded("Option A is too small, so the answer is C.", "ABCD")
    {'C'}
    """
    plain, patterns = _undressed(answer[-_SEARCHED:]), _patterns(letters)
    for sentence in (patterns.concluded, patterns.option):
        named = {letter for match in sentence.finditer(plain) for letter in patterns.bare.findall(match["named"])}
        if named:
            return named
    return letters_named(answer, letters) if patterns.opening.match(plain) else set()


def _undressed(text: str) -> str:
    return " ".join(_WRAPPING.sub(" ", text).translate(_DRESSING).split())


class _Patterns:
    """The ways to name one of a set of letters."""

    def __init__(self, letters: str) -> None:
        letter = f"([{letters}])(?![A-Za-z])"
        one = rf"\(?\s?[{letters}](?![A-Za-z])\s?\)?"
        several = rf"(?P<named>{one}(?:(?:\s?[,;/&]|\s?(?i:or|and)\b)+\s?{one})*+)"
        word = "(?i:option|choice|answer)"
        self.alone = re.compile(rf"(?i:(?:the\s)?(?:{word}(?:\s?(?:is|:|=))*\s?)?\(?\s?([{letters}])\s?\)?[.:]?)")
        self.marked = re.compile(rf"\(\s?{letter}\s?\)|(?<![A-Za-z(]){letter}\s?[.):]")
        self.bare = re.compile(rf"(?<![A-Za-z\\]){letter}")
        self.concluded = re.compile(rf"\b{word}(?:\s?(?i:is|:|=))+\s?(?:{word}\s?)?{several}")
        self.option = re.compile(rf"\b(?i:option|choice)\s?{several}")
        self.opening = re.compile(rf"\(?\s?(?i:[{letters}])\s?(?:[.):]|$)")


@lru_cache(maxsize=8)
def _patterns(letters: str) -> _Patterns:
    return _Patterns(letters)
