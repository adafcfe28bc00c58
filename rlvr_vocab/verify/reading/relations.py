r"""Reads what `=`, `<`, `\in` and `\approx` say: equalities, inequalities and their intervals, roundings."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction

from rlvr_vocab.verify.limits import TooLarge, Unreadable
from rlvr_vocab.verify.reading.readings import (
    Approximation,
    Bracketed,
    Collection,
    Equality,
    Expression,
    Inequality,
    Number,
    Reading,
    Union,
)
from rlvr_vocab.verify.reading.scanning import separators, split_at
from rlvr_vocab.verify.reading.units import DENIALS

ReadPart = Callable[[str], Reading]

INFINITY, MINUS_INFINITY = Expression(r"\infty"), Expression(r"-\infty")

_RELATION = re.compile(r"[=<>]|\\(?:approx|simeq|doteq|le|ge|ne|in)(?![A-Za-z])")
_ABOUT = separators(r"\\(?:approx|simeq|doteq)(?![A-Za-z])")
_IN = separators(r"\\in(?![A-Za-z])")
_EQUALS = separators("=")
_ORDER = separators(r"\\(?:le|ge|ne)(?![A-Za-z])|[<>]")
_MIRRORED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le", r"\ne": r"\ne"}
_MOST_SIDES = 20
_LEFT_BRACKET, _RIGHT_BRACKET = {"<": "(", r"\le": "["}, {"<": ")", r"\le": "]"}


def read_relation(text: str, read_part: ReadPart) -> Reading | None:
    r"""The relation that a text states, None where it states none; `x \in S` names a set as `x = 5` names a number.

    Raises:
        Unreadable: it states several kinds of relation at once.
        TooLarge: it is a chain of many.
    """
    if not _RELATION.search(text):
        return None
    about = [part for _, part in split_at(text, _ABOUT)]
    members = [part for _, part in split_at(text, _IN)]
    equal = [part for _, part in split_at(text, _EQUALS)]
    ordered = split_at(text, _ORDER)
    if max(len(about), len(members), len(equal), len(ordered)) > _MOST_SIDES:
        raise TooLarge("a chain of many relations")
    if len(about) > 1:
        return _approximation(about, read_part)
    if len(members) == 2 and (name := plain_name(members[0])):
        sides = Expression(name), _set(read_part(members[1]))
        if isinstance(sides[1], Bracketed):
            return Inequality(sides, (r"\in",), name, sides[1])
        return Equality(sides, (name, None))
    if (len(members) > 1) + (len(equal) > 1) + (len(ordered) > 1) > 1 or len(members) > 1:
        raise Unreadable("relations of several kinds")
    if len(equal) > 1:
        return Equality(tuple(map(read_part, equal)), tuple(map(plain_name, equal)))
    return _inequality(ordered, read_part) if len(ordered) > 1 else None


def _set(reading: Reading) -> Reading:
    is_named_set = isinstance(reading, Expression) and reading.latex.startswith((r"\mathbb", r"\emptyset"))
    if is_named_set or isinstance(reading, Bracketed | Collection | Union):
        return reading
    raise Unreadable(f"{reading} has no elements")


def _approximation(parts: Sequence[str], read_part: ReadPart) -> Reading:
    r"""`x \approx 3.14` is 3.14; of `\sqrt{2} \approx 1.41` the exact side counts, if the other is its rounding."""
    if not all(parts[1:]):
        raise Unreadable("nothing behind an approximation sign")
    exact = [part for part in parts if part and not plain_name(part)]
    if len(exact) == 1:
        return read_part(exact[0])
    about = read_part(exact[1]) if len(exact) == 2 else None
    if not isinstance(about, Number):
        raise Unreadable("more than one approximation")
    shown = re.search(r"\.([0-9]+)", exact[1])
    return Approximation(read_part(exact[0]), about, Fraction(1, 10 ** len(shown[1]) if shown else 1))


def _inequality(ordered: Sequence[tuple[str, str]], read_part: ReadPart) -> Inequality:
    """Written with `<` and `≤` alone, from the smaller to the larger side."""
    signs = tuple(sign for sign, _ in ordered[1:])
    texts = [part for _, part in ordered]
    if all(sign in (">", r"\ge") for sign in signs):
        signs, texts = tuple(_MIRRORED[sign] for sign in reversed(signs)), texts[::-1]
    sides, names = tuple(map(read_part, texts)), [plain_name(part) for part in texts]
    if not all(sign in _LEFT_BRACKET for sign in signs):
        return Inequality(sides, signs, None, None)
    return Inequality(sides, signs, *_interval(sides, names, signs))


def _interval(
    sides: Sequence[Reading], names: Sequence[str | None], signs: Sequence[str]
) -> tuple[str | None, Bracketed | None]:
    """The name that stands alone on one side or in the middle, and the interval that it is in."""
    if len(sides) == 2 and names[0] and not names[1]:
        return names[0], Bracketed("(", (MINUS_INFINITY, sides[1]), _RIGHT_BRACKET[signs[0]])
    if len(sides) == 2 and names[1] and not names[0]:
        return names[1], Bracketed(_LEFT_BRACKET[signs[0]], (sides[0], INFINITY), ")")
    if len(sides) == 3 and names[1] and not names[0] and not names[2]:
        return names[1], Bracketed(_LEFT_BRACKET[signs[0]], (sides[0], sides[2]), _RIGHT_BRACKET[signs[1]])
    return None, None


def intersection(one: Inequality, other: Inequality) -> Bracketed | None:
    """What `x > 1` and `x < 3` allow x to be together; None where they are not a lower and an upper bound."""
    if one.solved is None or other.solved is None or one.name != other.name:
        return None
    lower, upper = (one.solved, other.solved) if one.solved.items[1] == INFINITY else (other.solved, one.solved)
    if lower.items[1] != INFINITY or upper.items[0] != MINUS_INFINITY:
        return None
    return Bracketed(lower.opened, (lower.items[0], upper.items[1]), upper.closed)


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
_TAKES_BACK = re.compile(rf"\b(?:{'|'.join(sorted(DENIALS))}|minus|negative|half|twice|double|triple)\b")


def plain_name(text: str) -> str | None:
    r"""The name that a side of an equation is, None where it is a value.

    Of several names in brackets, `(x,y)`, the order must be the common one: in another, so would be the values.

    >>> plain_name("x"), plain_name("f(x)"), plain_name("2x"), plain_name(r"\pi"), plain_name("(y,x)")
    ('x', 'f(x)', None, None, None)
    """
    text = text.strip()
    if words := re.fullmatch(r"\\text\{ *([A-Za-z ]+?) *\}", text):
        return None if _TAKES_BACK.search(words[1].lower()) else words[1]
    if letters := _COORDINATES.fullmatch(text):
        return text if letters[1] == ",".join(sorted(letters[1].split(","))) else None
    if text in _POLAR:
        return text
    return text if _NAME.fullmatch(text) and text not in _NOT_A_NAME and not _TAKES_BACK.search(text.lower()) else None
