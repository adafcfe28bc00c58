"""Which completions are wanted, as plain values; imports nothing heavy, so that it is checked before anything loads."""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from rlvr_vocab.errors import UserError
from rlvr_vocab.nearest import did_you_mean, nearest_and_all

Order = Literal["file", "lowest", "highest", "problem"]
VerdictName = Literal["right", "wrong"]
_STEP_RANGE = re.compile(r"(?P<first>\d*)(?P<colon>:?)(?P<last>\d*)")


@dataclass(frozen=True)
class Judge:
    """The reward function whose score says whether a completion is right: it is at `full_mark`, or it is not."""

    name: str
    full_mark: float

    @property
    def least(self) -> float:
        """The lowest score that is right: the full mark, but for rounding."""
        return self.full_mark - 1e-6


@dataclass(frozen=True)
class Sieve:
    """What a completion must be like to be shown; None asks nothing.

    Attributes:
        step: a step, or a range of them, both ends included: `40`, `10:50`, `100:`, `:20`.
        problem: text that its prompt holds.
        contains: text that the completion itself holds. As in `problem`, capitals do not matter.
        verdict: what the judge says.
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
        """Its conditions; empty where there is none."""
        return " ".join(filter(None, [self.typed, "" if self.prompt is None else "this problem"]))

    @property
    def typed(self) -> str:
        """Its conditions as they are typed, but for `prompt`, which nobody types."""
        return " ".join(f"{name}={_typed(getattr(self, name))}" for name in TYPED if getattr(self, name) is not None)

    def has_step(self, step: int) -> bool:
        first, last = read_steps(self.step)
        return first <= step <= last


_VERDICTS = get_args(VerdictName)
TYPED = tuple(field.name for field in fields(Sieve) if field.name != "prompt")


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


def read_sieve(line: str) -> Sieve:
    """What somebody types to filter with: the keys of the command, as in `verdict=wrong contains="12 + 3"`.

    Raises:
        UserError: a word is no such key, or its value cannot be read.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UserError(f"{line}: {error}") from error
    return Sieve(**dict(map(_read_word, words)))


def _read_word(word: str) -> tuple[str, Any]:
    name, equals, value = word.partition("=")
    if not equals:
        raise UserError(f"{word}: write key=value, with {', '.join(TYPED)}")
    if name not in TYPED:
        raise UserError(f"unknown key {name}{did_you_mean(name, TYPED)}")
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
