"""What the full reward of a run would be, and which of its functions are the user's own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from rlvr_vocab.analysis.doctor.seen import number
from rlvr_vocab.analysis.doctor.thresholds import LIMITS
from rlvr_vocab.analysis.record import Row, RunFacts
from rlvr_vocab.rewards.library import LIBRARY

_MEAN = re.compile(r"rewards/(.+)/mean")


@dataclass(frozen=True)
class Scale:
    """The reward functions of a row with their weights as they apply."""

    weights: dict[str, float]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.weights)

    @cached_property
    def largest(self) -> float:
        return max(map(abs, self.weights.values()), default=1.0) or 1.0

    @cached_property
    def full(self) -> float:
        full = sum(weight * full_mark(name) for name, weight in self.weights.items() if weight > 0)
        return full if full > 0 else 1.0

    def is_near_zero(self, reward: float) -> bool:
        return abs(reward) <= LIMITS.nearly_none * self.full

    def is_near_full(self, reward: float) -> bool:
        """Not above it either: a score of 50 is no full mark, it is on another scale."""
        return LIMITS.nearly_all <= reward / self.full <= 2 - LIMITS.nearly_all


def scale_of(facts: RunFacts, row: Row) -> Scale:
    """The functions that a row has figures of; a weight that adapts is the row's, one that nobody names is 1."""
    named = {reward.name: reward.weight for reward in facts.rewards}
    logged = [match[1] for key in row if (match := _MEAN.fullmatch(key))]
    weights = {}
    for name in logged or list(named):
        adapted = number(row, f"rewards/{name}/weight")
        weights[name] = named.get(name, 1.0) if adapted is None else adapted
    return Scale(weights)


def is_own(name: str) -> bool:
    """Whether it is a function of the user's own."""
    return _plain(name) not in LIBRARY


def asked_as(facts: RunFacts, name: str) -> str:
    """The name by which a configuration asks for the function that is logged as `name`."""
    return next((reward.asked_as for reward in facts.rewards if reward.name == name and reward.asked_as), name)


def full_mark(name: str) -> float:
    """The score that counts as success; 1 for a function of the user's own."""
    return 1.0 if is_own(name) else LIBRARY[_plain(name)].full_mark


def _plain(name: str) -> str:
    """The library's functions are logged by their names, a second one of a run as name_2."""
    return re.sub(r"_\d+$", "", name)
