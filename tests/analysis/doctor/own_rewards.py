"""Reward functions of a user's own, each sick in its way."""

import time
from collections.abc import Sequence
from typing import Any


def constant(completions: Sequence[Any], **_: Any) -> list[float]:
    return [0.5] * len(completions)


def raises(completions: Sequence[Any], **_: Any) -> list[float]:
    raise KeyError("answer")


def characters(completions: Sequence[Any], **_: Any) -> list[float]:
    """Counted where a share would do."""
    return [50.0 * len(turn[0]["content"]) for turn in completions]


ENDED = [0.0]


def slow_accuracy(completions: Sequence[Any], solution: Sequence[str], **_: Any) -> list[float]:
    # As long as the rest of the step took, however busy the machine is.
    time.sleep(min(5.0, max(0.5, time.monotonic() - ENDED[0])))
    ENDED[0] = time.monotonic()
    return [float(f"boxed{{{gold}}}" in turn[0]["content"]) for turn, gold in zip(completions, solution, strict=True)]


def too_slow(completions: Sequence[Any], **_: Any) -> list[float]:
    time.sleep(0.4)
    return [float(number % 2) for number, _ in enumerate(completions)]


def think_format_of_text(completions: Sequence[Any], **_: Any) -> list[float]:
    """Looks at what was sampled alone, where a prefilled tag never is."""
    return [0.0] * len(completions)
