"""The weights of a run's rewards while it trains, and their place in a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.adaptive import AdaptiveWeight
from rlvr_vocab.rewards.guard import REASON
from rlvr_vocab.text import pluralize

REWARD_STATE = "reward_state.json"


class AdaptiveWeights:
    """Moves the adaptive ones of a trainer's weights after each generation batch.

    Every process sees the rewards of all, so all move alike.

    Args:
        adaptive: the weights that move, by the name of their reward.
    """

    def __init__(self, adaptive: Mapping[str, AdaptiveWeight]) -> None:
        self._adaptive = adaptive

    def observe(self, rewards_BR: torch.Tensor, names: Sequence[str]) -> None:
        """Count a batch: rewards of B completions by R functions, NaN for none."""
        for column, name in enumerate(names):
            if name in self._adaptive:
                scores = [None if score != score else score for score in rewards_BR[:, column].tolist()]
                self._adaptive[name].observe(scores)

    def values(self) -> dict[str, float]:
        """The weights that move, as they are now."""
        return {name: weight.value for name, weight in self._adaptive.items()}

    def save(self, folder: Path) -> None:
        state = {name: weight.state() for name, weight in self._adaptive.items()}
        (folder / REWARD_STATE).write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")

    def restore(self, folder: Path) -> None:
        """Go on from a checkpoint; a weight that was not adaptive then begins anew."""
        state = json.loads((folder / REWARD_STATE).read_text(encoding="utf-8"))
        for name, weight in self._adaptive.items():
            if name in state:
                weight.restore(state[name])


def require_scores(
    rewards_BR: torch.Tensor, names: Sequence[str], step: int, logged: Mapping[str, Sequence[Any]]
) -> None:
    """Stop where a whole batch has no reward to learn from.

    Args:
        logged: columns that the functions have logged, among them why a row has no score.

    Raises:
        UserError: no completion has a finite reward.
    """
    if not torch.isfinite(rewards_BR).any():
        said = {
            name: next(filter(None, logged.get(f"{REASON}{name}", ())), "gave only None, NaN or infinite ones")
            for name in names
        }
        listed = "; ".join(f"{name} {reason}" for name, reason in said.items())
        raise UserError(f"step {step + 1}: none of {pluralize(len(rewards_BR), 'completion')} has a reward: {listed}")
    infinite = torch.isinf(rewards_BR).nonzero()
    if len(infinite):
        row, column = infinite[0].tolist()
        raise UserError(f"step {step + 1}: {names[column]} is infinite for row {row + 1} of {len(rewards_BR)}")
