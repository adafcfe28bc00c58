"""What a reward function is here: a TRL-shaped callable that can also say why it scored as it did."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, cast


@dataclass(frozen=True)
class Mark:
    """The score of one completion, None where the reward does not apply to it, and why in a few words.

    Attributes:
        late: what was looked at had not come to an end by its deadline.
    """

    score: float | None
    reason: str
    late: bool = field(default=False, repr=False)


class RewardFunction(Protocol):
    """A function of a batch: `completions`, and columns of the data set by name, to one score per completion.

    Attributes:
        marks: the same, with reasons.
        full_mark: the score of a completion that leaves nothing to wish for.
    """

    __name__: str
    marks: Callable[..., list[Mark]]
    full_mark: float

    def __call__(self, *args: Any, **columns: Any) -> list[float | None]: ...


def reward(full_mark: float = 1.0) -> Callable[[Callable[..., list[Mark]]], RewardFunction]:
    """Make a reward function of one that returns marks.

    Example:
        >>> @reward(full_mark=1.0)
        ... def shouts(completions, **columns):
        ...     return [Mark(1.0, "upper case") if c.isupper() else Mark(0.0, "lower case") for c in completions]
        >>> shouts(completions=["YES", "no"])
        [1.0, 0.0]
        >>> shouts.marks(completions=["no"])
        [Mark(score=0.0, reason='lower case')]
    """

    def make(marks: Callable[..., list[Mark]]) -> RewardFunction:
        @functools.wraps(marks)
        def scores(*args: Any, **columns: Any) -> list[float | None]:
            return [mark.score for mark in marks(*args, **columns)]

        function = cast(RewardFunction, scores)
        function.marks, function.full_mark = marks, full_mark
        return function

    return make
