"""Reward functions of a user's own, each sick in its way."""

from collections.abc import Sequence
from typing import Any


def raises(completions: Sequence[Any], **_: Any) -> list[float]:
    raise KeyError("answer")


def think_format_of_text(completions: Sequence[Any], **_: Any) -> list[float]:
    """Looks at what was sampled alone, where a prefilled tag never is."""
    return [0.0] * len(completions)
