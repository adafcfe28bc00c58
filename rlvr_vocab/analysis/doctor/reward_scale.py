"""What the full reward of a run would be, and which of its functions are the user's own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from rlvr_vocab.analysis.doctor.history import FIXED_WEIGHT_REWARD, NEARLY_ALL, NEARLY_NONE, History, number
from rlvr_vocab.record.metrics import Row, RunFacts
from rlvr_vocab.rewards.library import LIBRARY
from rlvr_vocab.rewards.reward import Traits, traits_by_name

_MEAN = re.compile(r"rewards/(.+)/mean")


@dataclass(frozen=True)
class Scale:
    """The reward functions of a row with their weights as they apply, and the scores that are full marks."""

    weights: dict[str, float]
    full_marks: dict[str, float]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.weights)

    @cached_property
    def largest(self) -> float:
        return max(map(abs, self.weights.values()), default=1.0) or 1.0

    @cached_property
    def full(self) -> float:
        """What a completion gets that leaves nothing to wish for; 0 where there are only penalties."""
        return sum(weight * self.full_marks[name] for name, weight in self.weights.items() if weight > 0)

    def is_near_zero(self, reward: float) -> bool:
        """Never where 0 is the full mark."""
        return self.full > 0 and abs(reward) <= NEARLY_NONE * self.full

    def is_near_full(self, reward: float) -> bool:
        """Not above it either: a score of 50 is no full mark, it is on another scale."""
        return abs(reward - self.full) <= (1 - NEARLY_ALL) * (abs(self.full) or self.largest)


def scale_of(facts: RunFacts, row: Row, *, at_start: bool = False) -> Scale:
    """The functions that a row has figures of; one that nobody names has a weight of 1.

    Args:
        at_start: with the weights of the configuration; else one that adapts is as the row has it.
    """
    named = {reward.name: reward for reward in facts.rewards}
    logged = [match[1] for key in row if (match := _MEAN.fullmatch(key))]
    weights, full_marks = {}, {}
    for name in logged or list(named):
        adapted = None if at_start else number(row, f"rewards/{name}/weight")
        fact = named.get(name)
        weights[name] = adapted if adapted is not None else 1.0 if fact is None else fact.weight
        given = None if fact is None else fact.full_mark
        full_marks[name] = declared(name).full_mark if given is None else given
    return Scale(weights, full_marks)


def scale_seen(history: History, row: Row) -> Scale:
    """The scale of the reward that a run is judged by."""
    return scale_of(history.facts, row, at_start=history.reward == FIXED_WEIGHT_REWARD)


def is_own(name: str) -> bool:
    """Whether it is a function of the user's own."""
    return _plain(name) not in LIBRARY


def declared(name: str) -> Traits:
    """What a function declares; the defaults for one of the user's own."""
    return traits_by_name(_plain(name))


def _plain(name: str) -> str:
    """The library's functions are logged by their names, a second one of a run as name_2."""
    return re.sub(r"_\d+$", "", name)
