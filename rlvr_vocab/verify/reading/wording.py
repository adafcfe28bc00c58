"""Texts as two of them are compared: which answers are words at all, and what of words may differ."""

from __future__ import annotations

import re

_TEXT_GROUP = re.compile(r"\\text\{([^{}]*)\}")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_QUOTED = re.compile(r"(?<![A-Za-z0-9}])'([^']*)'(?![A-Za-z0-9])")
_QUOTES = re.compile(r"[\"`]|''")
_TYPESETTING = re.compile(r"\\([$&_])|(?<=[A-Za-z])_|[{}]")
_SPACES_THAT_JOIN_NOTHING = re.compile(r"(?<![0-9]) +(?![A-Za-z])|(?<![A-Za-z]) +(?![0-9])")
_DASHES = re.compile(r"-{2,3}")
_PUNCTUATION = re.compile(r"\.(?![0-9])|(?<![0-9])\.|(?<=[A-Za-z]{2})[:!?]+(?= |$)")
_COMMA = re.compile(r"[,;]+(?![0-9])|(?<![0-9])[,;]+")
_END_OF_LIST = re.compile(r" , and(?= )")
_WORD = re.compile(r"[A-Za-z]+(?:['-][A-Za-z]+)*")
_SHORT_WORDS = "a an and at by if in is it no nor of on or to we he yes odd even true false none"
WORDS_OF_TWO_LETTERS = tuple(word for word in _SHORT_WORDS.split() if len(word) == 2)

_NEVER_IN_FORMULAS = re.compile(r"[^\x00-\x7f]|[\"@#~`?:]")
_WORD_ALONE = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{3,}(?=[ .]|$)|[A-Za-z]{4,}|[A-Za-z]{2,} [A-Za-z]{2,}")
_TWO_VARIABLES = re.compile(r"[a-z]{2}")


def plain_words(cleaned: str) -> str:
    r"""What two texts must share to be the same: all but punctuation, quotes, and the capitals of words.

    A comma stays, see `same_words`.

    >>> plain_words(r"\text{Monday, and Tuesday.}"), plain_words("Yes!"), plain_words("AB and ab,")
    ('monday , tuesday', 'yes', 'AB and ab')
    """
    text = _QUOTED.sub(r" \1 ", _QUOTES.sub(" ", _TEXT_GROUP.sub(r" \1 ", cleaned)))
    text = _COMMA.sub(" , ", _DASHES.sub("-", _PUNCTUATION.sub(" ", text)))
    words = " ".join(map(_without_capitals, text.split()))
    return _END_OF_LIST.sub(" ,", words).strip(" ,")


def same_words(one: str, other: str) -> bool:
    """Whether two results of `plain_words` say the same: between the parts of a list a comma is an `and`, or nothing.

    >>> same_words("red , blue", "red and blue"), same_words("red , blue", "red blue"), same_words("a and b", "a")
    (True, True, False)
    """
    return any(one.replace(" ,", comma) == other.replace(" ,", comma) for comma in (" and", ""))


def without_typesetting(cleaned: str) -> str:
    r"""What two codes must share to be the same: all but how LaTeX sets them, spaces where they join nothing, dashes.

    >>> without_typesetting(r"\text{B}-12 , 9\text{ am}"), without_typesetting("5--10"), without_typesetting("1 2")
    ('B-12,9am', '5-10', '1 2')
    """
    text = _TYPESETTING.sub(lambda part: part[1] or "", _TEXT_GROUP.sub(r"\1", cleaned))
    text = _DASHES.sub("-", _SPACES_THAT_JOIN_NOTHING.sub("", text.strip()))
    return text.replace(";", ",")


def _without_capitals(word: str) -> str:
    """Short words in capitals stay: they may be points, or products of variables other than the small ones."""
    if not _WORD.fullmatch(word):
        return word
    is_lower_or_title = word[1:].islower() and len(word) > 2
    is_loud = word.isupper() and len(word) > 5
    return word.lower() if is_lower_or_title or is_loud or word.lower() in _SHORT_WORDS.split() else word


def is_formula(cleaned: str) -> bool:
    """Whether a cleaned text is mathematics rather than words, as far as its letters tell."""
    letters = _COMMAND.sub("\\\\", cleaned)
    if r"\text" in cleaned or _NEVER_IN_FORMULAS.search(cleaned) or _WORD_ALONE.search(letters):
        return False
    if cleaned.isalpha() and len(cleaned) > 1:
        return _TWO_VARIABLES.fullmatch(cleaned) is not None and cleaned not in _SHORT_WORDS.split()
    return re.search(r"[A-Za-z0-9]", cleaned) is not None
