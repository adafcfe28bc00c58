"""Bounds of an answer, and the ends of groups, arguments and parts of LaTeX text: one pass each, no recursion."""

from __future__ import annotations

import re

# The longest of the 30,000 gold answers of MATH, GSM8K and DeepScaleR has 300 characters.
MAX_CHARACTERS = 2_000
MAX_NESTING = 24
MAX_DIGITS = 1_000
# 2^(2^16) has 19,729 digits: more than any answer needs, and computed in a millisecond.
MAX_BITS = 1 << 16

_BRACKET = re.compile(r"[(\[{]|([)\]}])")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
ROUND = re.compile(r"[()]")

_OPENING = frozenset((*"([{", r"\{", r"\begin", r"\langle", r"\lfloor", r"\lceil"))
_CLOSING = frozenset((*")]}", r"\}", r"\end", r"\rangle", r"\rfloor", r"\rceil"))


class TooLarge(ValueError):
    """An answer that is longer, more deeply nested or larger than any problem needs."""


class Unreadable(ValueError):
    """Mathematics that cannot be read: brackets that do not match, an unknown macro."""


def require_bounded(text: str) -> None:
    """Raise `TooLarge` for too many characters or brackets nested too deeply: model output is untrusted."""
    if len(text) > MAX_CHARACTERS:
        raise TooLarge(f"{len(text)} characters")
    depth = 0
    for bracket in _BRACKET.finditer(text):
        depth = max(0, depth - 1) if bracket[1] else depth + 1
        if depth > MAX_NESTING:
            raise TooLarge(f"brackets nested more than {MAX_NESTING} deep")


def group_end(text: str, start: int, brackets: re.Pattern[str] = _BRACE) -> int | None:
    """The index after the brace or round bracket that closes the one at `start`; None if it is not closed."""
    depth = 0
    for token in brackets.finditer(text, start):
        depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(token[0], 0)
        if depth == 0:
            return token.end()
    return None


def separators(pattern: str, except_in: str = r"\Z") -> re.Pattern[str]:
    """The pattern for `split_at`: separators, text in which they do not separate, and brackets and environments."""
    return re.compile(rf"(?:{except_in})|(?P<separator>{pattern})|\\(?:[A-Za-z]+|.)|[()\[\]{{}}]", re.DOTALL)


def split_at(text: str, wanted: re.Pattern[str]) -> list[tuple[str, str]]:
    r"""Split cleaned LaTeX at separators outside all brackets and environments.

    Returns pairs of a separator, the first one empty, and the part after it; raises Unreadable for unmatched brackets.
    """
    parts, begin, depth, separator = [], 0, 0, ""
    for token in wanted.finditer(text):
        if token["separator"] is not None:
            if depth == 0:
                parts.append((separator, text[begin : token.start()].strip()))
                separator, begin = token[0], token.end()
            continue
        depth += (token[0] in _OPENING) - (token[0] in _CLOSING)
        if depth < 0:
            raise Unreadable("brackets that do not match")
    if depth:
        raise Unreadable("brackets that do not match")
    return [*parts, (separator, text[begin:].strip())]
