"""Worked solutions of those task families of reasoning-gym that the embedded model can learn from."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Any

from rlvr_vocab.data.arithmetic import worked_sum

_TERM = re.compile(r"([+-]?) ?(-?\d+)")


def worked_chain(metadata: Mapping[str, Any]) -> str:
    """A chain of sums and differences, one after the other, each digit by digit from the right.

    A `-:` in front says that the result is negative.

    Example:
        >>> worked_chain({"expression": "52 - 34 + 7"})
        '12-4=8,5-3-1=1;18+7:8+7=15,1+0+1=2'
        >>> worked_chain({"expression": "34 - 52"})
        '-:12-4=8,5-3-1=1'
    """
    steps: list[str] = []
    total, *terms = [-int(number) if sign == "-" else int(number) for sign, number in _terms(metadata["expression"])]
    for term in terms:
        named = f"{total}{term:+}:" if steps else ""
        steps.append(named + _worked_step(total, term))
        total += term
    return ";".join(steps)


def _terms(expression: str) -> list[tuple[str, str]]:
    return [(match[1], match[2]) for match in _TERM.finditer(expression)]


def _worked_step(one: int, other: int) -> str:
    larger, smaller = max(abs(one), abs(other)), min(abs(one), abs(other))
    digits = worked_sum(abs(one), abs(other)) if (one < 0) == (other < 0) else worked_difference(larger, smaller)
    return f"-:{digits}" if one + other < 0 else digits


def worked_difference(larger: int, smaller: int) -> str:
    """The difference digit by digit from the right; where one is borrowed the next digit has a last `-1`.

    Example:
        >>> worked_difference(52, 34)
        '12-4=8,5-3-1=1'
    """
    steps, borrowed = [], 0
    for digit, taken in zip_longest(reversed(str(larger)), reversed(str(smaller)), fillvalue="0"):
        left = int(digit) - int(taken) - borrowed
        borrows = left < 0
        steps.append(f"{'1' if borrows else ''}{digit}-{taken}{'-1' if borrowed else ''}={left % 10}")
        borrowed = int(borrows)
    return ",".join(steps)


def worked_spelling(metadata: Mapping[str, Any]) -> str:
    """The letters of a word, and the same from the last to the first.

    Example:
        >>> worked_spelling({"word": "sun"})
        's,u,n;n,u,s'
    """
    letters = metadata["word"]
    return f"{','.join(letters)};{','.join(reversed(letters))}"


def worked_bits(metadata: Mapping[str, Any]) -> str:
    """A number halved until 1 is left, an odd one marked; the marks are the bits.

    Example:
        >>> worked_bits({"number": 11})
        '11*,5*,2,1*:3'
    """
    halves = [metadata["number"]]
    while halves[-1] > 1:
        halves.append(halves[-1] // 2)
    marked = ",".join(f"{number}{'*' * (number % 2)}" for number in halves)
    return f"{marked}:{sum(number % 2 for number in halves)}"


# By task family, from the metadata of a problem.
WORKED: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "chain_sum": worked_chain,
    "spell_backward": worked_spelling,
    "count_bits": worked_bits,
}
