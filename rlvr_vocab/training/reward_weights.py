"""Reward weights that follow success, and the check that a batch has rewards."""

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
    """Updates a trainer's adaptive weights, by the name of their reward, after each generation batch."""

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
        """Restore the weights from a checkpoint; one that was not adaptive then begins anew."""
        state = json.loads((folder / REWARD_STATE).read_text(encoding="utf-8"))
        for name, weight in self._adaptive.items():
            if name in state:
                weight.restore(state[name])


def require_scores(
    rewards_BR: torch.Tensor, names: Sequence[str], step: int, logged: Mapping[str, Sequence[Any]]
) -> None:
    """UserError where no completion of a batch has a finite reward, with the reasons that functions logged."""
    if not torch.isfinite(rewards_BR).any():
        reasons = {
            name: next(filter(None, logged.get(f"{REASON}{name}", ())), "gave only None, NaN or infinite ones")
            for name in names
        }
        listed = "; ".join(f"{name} {reason}" for name, reason in reasons.items())
        raise UserError(f"step {step + 1}: none of {pluralize(len(rewards_BR), 'completion')} has a reward: {listed}")
    infinite = torch.isinf(rewards_BR).nonzero()
    if len(infinite):
        row, column = infinite[0].tolist()
        raise UserError(f"step {step + 1}: {names[column]} is infinite for row {row + 1} of {len(rewards_BR)}")
