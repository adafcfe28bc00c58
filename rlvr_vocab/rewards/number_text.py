r"""Reads a number as people and models write it, exactly: `1,234.5`, `-3/4`, `\frac{3}{4}`, `\$12`, `50\%`, `1e6`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

# Model output is untrusted: beyond these a text is not read as a number.
_MOST_DIGITS, _LARGEST_EXPONENT = 400, 400
_LONGEST_NUMBER = 1_000
_SEARCHED = 20_000  # characters, from the end, in which the last number of a text is looked for

_DIGITS = r"(?:(?:[0-9]{1,3}(?:,[0-9]{3})++(?![0-9])|[0-9]++)(?:\.[0-9]++)?+|\.[0-9]++)"
_CURRENCY = r"(?:\\?[$€£¥₹]\s?)"
_SIGN = r"(?:(?<![\w)\]}])[+-])"
_FRACTION = (
    rf"\\[cdt]?frac\s?(?:\{{\s?(?P<over>[+-]?{_DIGITS})\s?\}}\s?\{{\s?(?P<under>{_DIGITS})\s?\}}"
    r"|(?P<short>[0-9]{2}))"
)
_POWER_OF_TEN = (
    r"(?:[eE](?P<e>[+-]?[0-9]++)"
    r"|\s?(?:\\times|\\cdot|×|\*)\s?10\^(?:\{(?P<braced>[+-]?[0-9]++)\}|(?P<bare>[+-]?[0-9]++)))"
)
_PLAIN = rf"(?<![\w.^\\])(?<![_^]\{{)(?P<digits>{_DIGITS})(?:\s?/\s?(?P<divisor>{_DIGITS})|{_POWER_OF_TEN})?"
_NUMBER = rf"(?P<sign>{_SIGN}?{_CURRENCY}?|{_CURRENCY}[+-])(?:{_FRACTION}|{_PLAIN})(?P<percent>\s?\\?%)?"
_NO_UNIT = r"(?!\s?(?:or|and|to|not|by|mod)\b)"
_WORDS = rf"{_NO_UNIT}[A-Za-z]{{1,20}}(?:[ /][A-Za-z]{{1,20}}){{0,3}}"
_UNIT = (
    rf"(?:\\(?:text|textrm|mathrm|mbox)\s?\{{{_NO_UNIT}[^{{}}0-9]{{0,40}}\}}"
    rf"|(?<=\s){_WORDS}|\^?\{{?\\circ\}}?|\\degrees?|°)(?:\^\{{?[23]\}}?)?"
)
_ANYWHERE = re.compile(_NUMBER)
_ALONE = re.compile(rf"(?:[A-Za-z]\w{{0,9}}\s?=\s?)?{_NUMBER}\s?(?:\\[,;:]\s?)?(?:{_UNIT})?\s?\.?")
_UNLETTERED_GROUP = re.compile(r"\\(?:text|textbf|mathbf|mathrm)\s?\{([^{}A-Za-z]*)\}")
# 1{,}234 and 1\,234 and 1,\!234 in LaTeX, and the narrow spaces of typesetters.
_THOUSANDS = re.compile(r"(?<=[0-9])(?:\{,\}|,?\\!|\\[,;: ]|[\u00a0\u2009\u202f])(?=[0-9]{3}(?![0-9]))")


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
    if len(text) > _LONGEST_NUMBER:
        return None
    plain = _UNLETTERED_GROUP.sub(r"\1", _plain(text)).strip()
    for opened, closed in (("$", "$"), (r"\(", r"\)")):
        if plain.startswith(opened) and plain.endswith(closed):
            plain = plain.removeprefix(opened).removesuffix(closed).strip()
    match = _ALONE.fullmatch(plain)
    return _number(match) if match else None


def last_number(text: str) -> Number | None:
    """The last number of a text, digits within words and exponents left out; None without one.

    >>> last_number("Of 12 eggs, 2.5 % are 0.3.")
    Number(value=Fraction(3, 10), percent=False)
    """
    last = None
    for match in _ANYWHERE.finditer(_plain(text[-_SEARCHED:])):
        last = match
    return _number(last) if last else None


def _plain(text: str) -> str:
    return " ".join(_THOUSANDS.sub(",", text.replace("−", "-")).split())


def _number(match: re.Match[str]) -> Number | None:
    short = match["short"]
    above = match["over"] or match["digits"] or short[0]
    below = match["under"] or match["divisor"] or (short[1] if short else "1")
    power = match["e"] or match["braced"] or match["bare"] or "0"
    if max(len(above), len(below)) > _MOST_DIGITS or len(power) > 5 or abs(int(power)) > _LARGEST_EXPONENT:
        return None
    divisor = Fraction(below.replace(",", ""))
    if divisor == 0:
        return None
    value = Fraction(f"{above.replace(',', '')}e{power}") / divisor
    return Number(-value if "-" in match["sign"] else value, percent=match["percent"] is not None)
