"""Parameters of reward functions as users give them, checked before the first completion is scored.

Each function returns the value, or raises a `UserError` that names reward, parameter and value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

from rlvr_vocab.errors import UserError

_T = TypeVar("_T")
_LONGEST_SHOWN = 60


def required(reward: str, name: str, value: _T | None, meaning: str) -> _T:
    """The value of a parameter that has no sensible default."""
    if value is None:
        raise UserError(f"{reward}: {name} is missing: {meaning}")
    return value


def number(reward: str, name: str, value: Any, least: float = -math.inf, most: float = math.inf) -> float:
    """A finite number from `least` to `most`."""
    usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not usable or not least <= value <= most:
        bounds = [f"at least {least:g}"] * (least > -math.inf) + [f"at most {most:g}"] * (most < math.inf)
        raise UserError(f"{reward}: {name}={shown(value)} must be a number{', ' * bool(bounds)}{' and '.join(bounds)}")
    return float(value)


def whole_number(reward: str, name: str, value: Any, least: int = 0) -> int:
    """A whole number from `least` on."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UserError(f"{reward}: {name}={shown(value)} must be a whole number, at least {least}")
    return value


def switch(reward: str, name: str, value: Any) -> bool:
    """True or false; `no` and `off` are texts in a configuration, and would count as true."""
    if not isinstance(value, bool):
        raise UserError(f"{reward}: {name}={shown(value)} must be true or false")
    return value


def one_of(reward: str, name: str, value: Any, choices: Sequence[str]) -> str:
    """One of a few words."""
    if value not in choices:
        raise UserError(f"{reward}: {name}={shown(value)} must be one of {', '.join(choices)}")
    return str(value)


def shown(value: Any) -> str:
    """A value as it stands in an error message: on one line, and not at any length."""
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
