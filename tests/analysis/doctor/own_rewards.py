"""Reward functions of a user's own, each sick in its way."""

import time
from collections.abc import Sequence
from typing import Any


def raises(completions: Sequence[Any], **_: Any) -> list[float]:
    raise KeyError("answer")


def too_slow(completions: Sequence[Any], **_: Any) -> list[float]:
    time.sleep(0.4)
    return [float(number % 2) for number, _ in enumerate(completions)]


def think_format_of_text(completions: Sequence[Any], **_: Any) -> list[float]:
    """Looks at what was sampled alone, where a prefilled tag never is."""
    return [0.0] * len(completions)
