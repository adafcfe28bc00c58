"""Which completions are wanted, in which order; imports nothing heavy, so that it is checked before anything loads."""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from rlvr_vocab.errors import UserError
from rlvr_vocab.nearest import did_you_mean, nearest_and_all

Order = Literal["file", "lowest", "highest"]
VerdictName = Literal["right", "wrong"]
_STEP_RANGE = re.compile(r"(?P<first>\d*)(?P<colon>:?)(?P<last>\d*)")


@dataclass(frozen=True)
class CorrectnessReward:
    """The reward function that says whether a completion is right: it scores `full_mark`, but for rounding."""

    name: str
    full_mark: float

    @property
    def threshold(self) -> float:
        """The lowest score that is right."""
        return self.full_mark - 1e-6


@dataclass(frozen=True)
class SampleFilter:
    """Conditions that a completion must meet to be shown; None is no condition.

    Attributes:
        step: a step, or a range of them, both ends included: `40`, `10:50`, `100:`, `:20`.
        problem: text that its prompt holds.
        contains: text that the completion itself holds. As in `problem`, capitals do not matter.
        verdict: `right` or `wrong`, by the correctness reward.
        prompt: its whole prompt.
    """

    step: str | None = None
    problem: str | None = None
    contains: str | None = None
    verdict: VerdictName | None = None
    min_reward: float | None = None
    max_reward: float | None = None
    prompt: str | None = None

    def __post_init__(self) -> None:
        read_steps(self.step)
        if self.verdict is not None and self.verdict not in get_args(VerdictName):
            raise UserError(f"verdict={self.verdict}: no such verdict{nearest_and_all(self.verdict, _VERDICTS)}")
        for name in ("min_reward", "max_reward"):
            if getattr(self, name) is not None and math.isnan(getattr(self, name)):
                raise UserError(f"{name}=nan: must be a number")
        if self.min_reward is not None and self.max_reward is not None and self.min_reward > self.max_reward:
            raise UserError(f"min_reward={self.min_reward:g} is above max_reward={self.max_reward:g}: nothing is both")

    def __str__(self) -> str:
        """Its conditions in words; empty where there is none."""
        return " ".join(filter(None, [self.as_typed, "" if self.prompt is None else "this problem"]))

    @property
    def as_typed(self) -> str:
        """Its conditions as they are typed, but for `prompt`, which nobody types."""
        return " ".join(
            f"{name}={_typed(getattr(self, name))}" for name in FILTER_KEYS if getattr(self, name) is not None
        )

    def has_step(self, step: int) -> bool:
        first, last = read_steps(self.step)
        return first <= step <= last


_VERDICTS = get_args(VerdictName)
FILTER_KEYS = tuple(field.name for field in fields(SampleFilter) if field.name != "prompt")


def read_steps(text: str | None) -> tuple[float, float]:
    """First and last step of a range.

    >>> read_steps("40"), read_steps("10:50"), read_steps("100:")
    ((40, 40), (10, 50), (100, inf))

    Raises:
        UserError: it is no range, or an empty one.
    """
    if text is None:
        return 0, math.inf
    match = _STEP_RANGE.fullmatch(text.strip())
    if match is None or not (match["first"] or match["last"]):
        raise UserError(f"step={text}: give a step or a range of steps, as in 40, 10:50, 100: or :20")
    first = int(match["first"] or 0)
    last = int(match["last"]) if match["last"] else math.inf if match["colon"] else first
    if first > last:
        raise UserError(f"step={text}: the first step is after the last one")
    return first, last


def read_filter(line: str) -> SampleFilter:
    """The filter that a line describes with the keys of the command, as in `verdict=wrong contains="12 + 3"`.

    Raises:
        UserError: a word is not such a key, or its value cannot be read.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UserError(f"{line}: {error}") from error
    return SampleFilter(**dict(map(_read_word, words)))


def _read_word(word: str) -> tuple[str, Any]:
    name, equals, value = word.partition("=")
    if not equals:
        raise UserError(f"{word}: write key=value, with {', '.join(FILTER_KEYS)}")
    if name not in FILTER_KEYS:
        raise UserError(f"unknown key {name}{did_you_mean(name, FILTER_KEYS)}")
    if not value:
        raise UserError(f"{name}= has no value: leave it out to ask nothing")
    if not name.endswith("_reward"):
        return name, value
    try:
        return name, float(value)
    except ValueError:
        raise UserError(f"{name}={value}: expected a number") from None


def _typed(value: str | float) -> str:
    return shlex.quote(value) if isinstance(value, str) else f"{value:g}"
