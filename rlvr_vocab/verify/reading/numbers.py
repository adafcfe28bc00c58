r"""Numbers that can be read exactly: integers, decimals, fractions, mixed numbers, powers, repeating decimals."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction

from rlvr_vocab.verify.reading.scanning import MAX_BITS, MAX_DIGITS, TooLarge, Unreadable

_SIGN = r"(?P<sign>[+-]?)"
_PLAIN = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_GROUPED = r"[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?: [0-9]{3})+)(?:\.[0-9]+)?"
_NUMBER = rf"(?:{_GROUPED}|{_PLAIN})"
_SIGNED = rf"[+-]?{_NUMBER}"
_EXPONENT = r"\^\{(?P<power>[+-]?[0-9]+)\}"

_WHOLE = re.compile(rf"{_SIGN}(?P<number>{_NUMBER})")
_FRACTION = re.compile(rf"{_SIGN}\\frac\{{(?P<above>{_SIGNED})\}}\{{(?P<below>{_SIGNED})\}}")
_SLASHED = re.compile(
    rf"{_SIGN}(?P<above>{_NUMBER}|\({_SIGNED}\)|\{{{_SIGNED}\}})/(?P<below>{_SIGNED}|\({_SIGNED}\)|\{{{_SIGNED}\}})"
)
_MIXED = re.compile(
    rf"{_SIGN}(?P<whole>[0-9]+)"
    r"(?: ?\\frac\{(?P<above>[0-9]+)\}\{(?P<below>[0-9]+)\}| (?P<over>[0-9]+)/(?P<under>[0-9]+))"
)
_SCIENTIFIC = re.compile(rf"{_SIGN}(?P<factor>{_NUMBER})(?:\*| ?x ?)10{_EXPONENT}")
_E_NOTATION = re.compile(rf"{_SIGN}(?P<factor>{_PLAIN})[eE](?P<power>[+-]?[0-9]+)")
_POWER = re.compile(rf"{_SIGN}(?P<base>{_PLAIN}|\({_SIGNED}\)){_EXPONENT}")
_FACTORIAL = re.compile(rf"{_SIGN}(?P<of>[0-9]{{1,3}})!")
_DOTTED = r"\\dot\{?[0-9]\}?(?:[0-9]*\\dot\{?[0-9]\}?)?"
_REPEATING = re.compile(
    rf"{_SIGN}(?P<whole>[0-9]*)\.(?P<fixed>[0-9]*)"
    rf"(?:\\(?:overline|bar)\{{(?P<bar>[0-9]+)\}}|\((?P<round>[0-9]+)\)|(?P<dots>{_DOTTED}))(?:\\dots)?"
)
_GOES_ON = re.compile(rf"{_SIGN}(?P<whole>[0-9]*)\.(?P<shown>[0-9]{{2,100}})\\dots")
_PERIOD_SHOWN = re.compile(r"([0-9])\1\1+$|([0-9]{2,6}?)\2+$")


def read_number(text: str) -> Fraction | None:
    r"""The exact value of a number in the spelling of `clean`; None where it is none, or one beyond all size.

    Raises:
        TooLarge: more digits than an answer has.
        Unreadable: a zero with a sign.
    """
    for pattern, value_of in _READERS:
        if found := pattern.fullmatch(text):
            value = value_of(found)
            return -value if value is not None and found["sign"] == "-" else value
    return None


def _plain(found: re.Match[str]) -> Fraction:
    value = _decimal(found["number"])
    if value == 0 and found["sign"]:
        raise Unreadable("a zero with a sign")
    return value


def _fraction(found: re.Match[str]) -> Fraction | None:
    above, below = _decimal(found["above"].strip("(){}")), _decimal(found["below"].strip("(){}"))
    return above / below if below else None


def _mixed(found: re.Match[str]) -> Fraction | None:
    """A whole part before a proper fraction. Before an improper one it may as well be a factor."""
    above, below = _decimal(found["above"] or found["over"]), _decimal(found["below"] or found["under"])
    return _decimal(found["whole"]) + above / below if 0 < above < below else None


def _scientific(found: re.Match[str]) -> Fraction | None:
    power = power_of(Fraction(10), found["power"])
    return None if power is None else _decimal(found["factor"]) * power


def _repeating(found: re.Match[str]) -> Fraction:
    period = found["bar"] or found["round"] or re.sub(r"[^0-9]", "", found["dots"])
    return _periodic(found["whole"], found["fixed"], period)


def _going_on(found: re.Match[str]) -> Fraction | None:
    """`0.333…`: periodic where its end shows one digit three times, or a longer block twice."""
    block = _PERIOD_SHOWN.search(found["shown"])
    return None if block is None else _periodic(found["whole"], found["shown"][: block.start()], block[1] or block[2])


_READERS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Fraction | None]], ...] = (
    (_WHOLE, _plain),
    (_FRACTION, _fraction),
    (_SLASHED, _fraction),
    (_MIXED, _mixed),
    (_SCIENTIFIC, _scientific),
    (_E_NOTATION, _scientific),
    (_POWER, lambda found: power_of(_decimal(found["base"].strip("()")), found["power"])),
    (_REPEATING, _repeating),
    (_GOES_ON, _going_on),
    (_FACTORIAL, lambda found: Fraction(math.factorial(int(found["of"])))),
)


def power_of(base: Fraction, exponent: str | int) -> Fraction | None:
    """`base ** exponent`; None where it has none, or one of more than `MAX_BITS` bits."""
    if len(str(exponent)) > 9:
        return None
    power = int(exponent)
    if base == 0 and power <= 0:
        return None
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    too_large = size * abs(power) > MAX_BITS and abs(base) not in (0, 1)
    return None if too_large else base**power


def _decimal(digits: str) -> Fraction:
    digits = digits.replace(",", "").replace(" ", "")
    if len(digits) > MAX_DIGITS:
        raise TooLarge(f"a number of {len(digits)} digits")
    return Fraction(digits.removesuffix("."))


def _periodic(whole: str, fixed: str, period: str) -> Fraction:
    if len(whole) + len(fixed) + len(period) > MAX_DIGITS:
        raise TooLarge("a repeating decimal with a huge period")
    shift = 10 ** len(fixed)
    return Fraction(int((whole + fixed) or "0"), shift) + Fraction(int(period), shift * (10 ** len(period) - 1))
