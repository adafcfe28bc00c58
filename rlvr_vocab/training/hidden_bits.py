"""Steers how much the choice among the ids of a text tells, by a term of the loss that is as strong as it has to be."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

HIDDEN_BITS_STATE = "hidden_bits.json"
# The weight of the term: so much for the error of the newest step, and so much for each step's before it. An error is
# relative to the target, and never counts for more than the whole of it.
_PROPORTIONAL, _INTEGRAL = 1.0, 0.05


class HiddenBitsTarget(TrainerCallback):
    """Adds to the loss the bound of the hidden channel times a weight: above 0 where it is too high, else below.

    Args:
        metrics: of a trainer, by name; `hidden/bound` of each step is read there, and `hidden/weight` logged.
        target: bits per thinking token, as `hidden/bound` has them.
    """

    def __init__(self, metrics: dict[str, list[float]], target: float) -> None:
        self._metrics, self._target = metrics, target
        self._error = self._errors = 0.0

    @property
    def weight(self) -> float:
        return _PROPORTIONAL * self._error + _INTEGRAL * self._errors

    def term(self, copies_BC: torch.Tensor, capacity_BC: torch.Tensor, thinking_BC: torch.Tensor) -> torch.Tensor:
        """Of a micro-batch, with the gradient of its bound; arguments as `BatchMetrics.log_entropies` has them."""
        nats = ((capacity_BC - copies_BC) * thinking_BC).sum() / thinking_BC.sum().clamp(min=1)
        return self.weight * nats / math.log(2)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if bounds := self._metrics.get("hidden/bound"):  # else nothing was thought
            self._error = max(-1.0, min(1.0, bounds[-1] / self._target - 1))
            self._errors += self._error
            self._metrics["hidden/weight"].append(self.weight)

    def save(self, folder: Path) -> None:
        state = {"error": self._error, "errors": self._errors}
        (folder / HIDDEN_BITS_STATE).write_text(json.dumps(state) + "\n", encoding="utf-8")

    def restore(self, folder: Path) -> None:
        """Go on from a checkpoint; one that was written without a target begins anew."""
        file = folder / HIDDEN_BITS_STATE
        if file.exists():
            state = json.loads(file.read_text(encoding="utf-8"))
            self._error, self._errors = state["error"], state["errors"]
