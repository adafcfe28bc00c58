r"""Braces around every argument: `\frac12` → `\frac{1}{2}`, `\sqrt2` → `\sqrt{2}`, `x^(2)` and `x^2` → `x^{2}`."""

from __future__ import annotations

import re

_NUM_ARGUMENTS = {r"\frac": 2, r"\binom": 2} | dict.fromkeys(
    ("^", "_", r"\sqrt", r"\overline", r"\bar", r"\hat", r"\vec", r"\tilde", r"\text", r"\mathbb", r"\begin", r"\end"),
    1,
)
_TOKEN = re.compile(r"\\(?:[A-Za-z]+|.)|.", re.DOTALL)


def with_braces(text: str) -> str:
    r"""The text with braces around the arguments of powers, indices, fractions, roots and accents.

    Plain text is understood too: an exponent is a whole number (`2^10`) or what stands in round brackets.

    >>> with_braces(r"\frac1\sqrt3 x^(n+1)")
    '\\frac{1}{\\sqrt{3}} x^{n+1}'
    """
    tokens = _TOKEN.findall(text)
    units: list[str] = []  # what comes behind, the nearest last: groups, macros with their arguments, characters
    num_closed = 0  # closing braces among the units
    for position in reversed(range(len(tokens))):
        token = tokens[position]
        if token == "{" and num_closed:
            units.append("{" + _taken(units, "}").strip() + "}")
            num_closed -= 1
        elif token in _NUM_ARGUMENTS:
            is_script = token == "^" or (token == "_" and tokens[position - 1 : position] != [r"\log"])
            units.append(token + _arguments(units, token, is_script))
        else:
            units.append(token)
            num_closed += token == "}"
    return "".join(reversed(units))


def _taken(units: list[str], closing: str) -> str:
    """What comes before the nearest `closing`, taken off the units with it."""
    start = len(units) - 1
    while units[start] != closing:
        start -= 1
    inside = "".join(reversed(units[start + 1 :]))
    del units[start:]
    return inside


def _arguments(units: list[str], macro: str, is_script: bool) -> str:
    _skip_spaces(units)
    optional = f"[{_taken(units, ']')[1:]}]" if macro == r"\sqrt" and units[-1:] == ["["] and "]" in units else ""
    found = [_argument(units, is_script) for _ in range(_NUM_ARGUMENTS[macro])]
    return optional + "".join(f"{{{argument}}}" for argument in found if argument is not None)


def _argument(units: list[str], is_script: bool) -> str | None:
    _skip_spaces(units)
    if not units or units[-1] == "}":
        return None
    argument = units.pop()
    if len(argument) > 1 and argument[0] == "{":
        return argument[1:-1]
    if argument == "(" and (end := _closing_bracket(units)) is not None:
        inside = "".join(reversed(units[end + 1 :]))
        del units[end:]
        return inside.strip()
    while is_script and units and units[-1].isdigit() and (argument == "-" or argument.lstrip("-").isdigit()):
        argument += units.pop()
    return argument


def _closing_bracket(units: list[str]) -> int | None:
    """Where the bracket is that closes the one that has just been taken off."""
    depth = 1
    for position in reversed(range(len(units))):
        depth += (units[position] == "(") - (units[position] == ")")
        if depth == 0:
            return position
    return None


def _skip_spaces(units: list[str]) -> None:
    while units and units[-1] == " ":
        units.pop()
