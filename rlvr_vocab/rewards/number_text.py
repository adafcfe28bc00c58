r"""The number that an answer is, or the last one that a text mentions: `1,234.5`, `-3/4`, `\$12`, `50\%`, `1e6`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from rlvr_vocab.rewards.verify.limits import TooLarge, Unreadable
from rlvr_vocab.rewards.verify.reading import readings
from rlvr_vocab.rewards.verify.reading.reader import read
from rlvr_vocab.rewards.verify.reading.units import PERCENT

_SEARCHED = 20_000  # characters, from the end, in which the last number of a text is looked for

_DIGITS = r"(?:(?:[0-9]{1,3}(?:,[0-9]{3})++(?![0-9])|[0-9]++)(?:\.[0-9]++)?+|\.[0-9]++)"
_CURRENCY = r"(?:\\?[$€£¥₹]\s?)"
_SIGN = r"(?:(?<![\w)\]}])[+-])"
_FRACTION = rf"\\[cdt]?frac\s?(?:\{{\s?[+-]?{_DIGITS}\s?\}}\s?\{{\s?{_DIGITS}\s?\}}|[0-9]{{2}})"
_POWER_OF_TEN = r"(?:[eE][+-]?[0-9]++|\s?(?:\\times|\\cdot|×|\*)\s?10\^(?:\{[+-]?[0-9]++\}|[+-]?[0-9]++))"
_PLAIN = rf"(?<![\w.^\\])(?<![_^]\{{){_DIGITS}(?:\s?/\s?{_DIGITS}|{_POWER_OF_TEN})?"
# With what follows in dates, ranges and codes: `2024-01-05` is no number, and its last digits are none either.
_JOINED = rf"(?:[-–—‐‑:/.]{_CURRENCY}?{_DIGITS})*+"
_ANYWHERE = re.compile(rf"(?:{_SIGN}?{_CURRENCY}?|{_CURRENCY}[+-])(?:{_FRACTION}|{_PLAIN}){_JOINED}(?:\s?\\?%)?")


@dataclass(frozen=True)
class Number:
    """A number that was read, and whether a percent sign followed: 50 % has the value 50."""

    value: Fraction
    percent: bool


def whole_text_number(text: str) -> Number | None:
    r"""The number that a text consists of, a variable before it and a unit after it allowed; None for anything else.

    >>> whole_text_number(r"x = \frac{3}{4}\text{ km}")
    Number(value=Fraction(3, 4), percent=False)
    >>> whole_text_number(r"3\sqrt{2}") is whole_text_number("41 = 42") is None
    True
    """
    try:
        reading = read(text)
    except (TooLarge, Unreadable):
        return None
    if isinstance(reading, readings.Equality) and reading.name is not None and len(reading.values) == 1:
        [reading] = reading.values
    return Number(reading.value, reading.unit == PERCENT) if isinstance(reading, readings.Number) else None


def last_number(text: str) -> Number | None:
    """The last number of a text, digits within words and exponents left out; None without one, or for a code behind it.

    >>> last_number("Of 12 eggs, 2.5 % are 0.3.")
    Number(value=Fraction(3, 10), percent=False)
    >>> last_number("Of 12 eggs, 5 were laid on 2024-01-05.") is None
    True
    """
    last = None
    for match in _ANYWHERE.finditer(" ".join(text[-_SEARCHED:].replace("−", "-").split())):
        last = match
    return whole_text_number(last[0]) if last else None
