"""Which side of an equation only names the answer: `x`, `f(x)`, `Area`, `\\angle ABC`."""

from __future__ import annotations

import re

_LETTER = r"(?:[A-Za-z]|\\(?!(?:pi|infty|emptyset|frac|sqrt|text|begin|ln|log|exp)(?![A-Za-z]))[a-z]+)"
_INDEX = r"(?:_\{[^{}]*\})?'*"
_NAME = re.compile(
    rf"(?:{_LETTER}{_INDEX}"  # x, \theta, a_1
    rf"|{_LETTER}{_INDEX}(?:\^\{{-1\}})?\([^()]*\)"  # f(x), f^{-1}(x), P(A)
    r"|[A-Za-z][a-z]{2,}(?: [a-z]+)*"  # Area
    r"|\[?[A-Z]{2,4}\]?|\|[A-Z]{2}\||\\overline\{[A-Z]{2}\}"  # AB, [ABC]
    r"|m?\\angle ?[A-Z]{1,3})"
)
_COORDINATES = re.compile(r"\(([a-z](?:,[a-z]){1,5})\)")
_POLAR = (r"(r,\theta)", r"(r,\theta,z)", r"(\rho,\theta,\phi)")
_NOT_A_NAME = frozenset(("e", "i"))


def plain_name(text: str) -> str | None:
    r"""The name that a side of an equation is, None where it is a value.

    Of several names in brackets, `(x,y)`, the order must be the common one: in another, so would be the values.

    >>> plain_name("x"), plain_name("f(x)"), plain_name("2x"), plain_name(r"\pi"), plain_name("(y,x)")
    ('x', 'f(x)', None, None, None)
    """
    text = text.strip()
    if words := re.fullmatch(r"\\text\{ *([A-Za-z ]+?) *\}", text):
        return words[1]
    if letters := _COORDINATES.fullmatch(text):
        return text if letters[1] == ",".join(sorted(letters[1].split(","))) else None
    if text in _POLAR:
        return text
    return text if _NAME.fullmatch(text) and text not in _NOT_A_NAME else None
