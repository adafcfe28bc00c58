"""How large an answer may be before it is refused unread: model output is untrusted."""

from __future__ import annotations

import re

# The longest of the 30,000 gold answers of MATH, GSM8K and DeepScaleR that we looked at has 300 characters.
MAX_CHARACTERS = 2_000
MAX_NESTING = 24
MAX_DIGITS = 1_000
# 2^(2^16) has 19,729 digits: more than any problem asks for, still computed in a millisecond.
MAX_BITS = 1 << 16

_BRACKET = re.compile(r"[(\[{]|([)\]}])")


class TooLarge(ValueError):
    """An answer that is longer, deeper or bigger than any problem asks for."""


class Unreadable(ValueError):
    """Mathematics that cannot be read: brackets that do not match, a macro that nobody knows."""


def require_bounded(text: str) -> None:
    """Refuse what is too long or too deep to be an answer.

    Raises:
        TooLarge: too many characters, or brackets nested too deeply.
    """
    if len(text) > MAX_CHARACTERS:
        raise TooLarge(f"{len(text)} characters")
    depth = 0
    for bracket in _BRACKET.finditer(text):
        depth = max(0, depth - 1) if bracket[1] else depth + 1
        if depth > MAX_NESTING:
            raise TooLarge(f"brackets nested more than {MAX_NESTING} deep")
