"""Turns a list of named rewards into the functions and weights that a trainer takes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.accuracy import accuracy

RewardFunction = Callable[..., list[float | None]]
LIBRARY: dict[str, RewardFunction] = {"accuracy": accuracy}


@dataclass(frozen=True)
class RewardSpec:
    """One reward of a run: a name of `LIBRARY`, its weight in the sum, its parameters."""

    name: str
    weight: float = 1.0
    params: Mapping[str, Any] = field(default_factory=dict)


def build_rewards(specs: Sequence[RewardSpec], think_tags: tuple[str, str]) -> tuple[list[RewardFunction], list[float]]:
    """Functions and weights, in the order given.

    Raises:
        UserError: a name is not in the library, or there is no reward at all.
    """
    if not specs:
        raise UserError("rewards: the list of functions is empty, a run needs at least one")
    return [_build(spec, think_tags) for spec in specs], [spec.weight for spec in specs]


def _build(spec: RewardSpec, think_tags: tuple[str, str]) -> RewardFunction:
    if spec.name not in LIBRARY:
        raise UserError(f"rewards: {spec.name!r} is not a reward function: use one of {', '.join(sorted(LIBRARY))}")
    function = LIBRARY[spec.name]

    @functools.wraps(function)  # the trainer logs each reward under its function's name
    def reward(**columns: Any) -> list[float | None]:
        return function(**{**columns, **spec.params, "think_tags": think_tags})

    return reward
