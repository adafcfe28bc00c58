"""Steers how much the choice among the ids of a text tells, by a term of the loss that is as strong as it has to be."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rlvr_vocab.training.refuse_control import refuse_target
from rlvr_vocab.vocab.regions import THINKING, scored_regions

HIDDEN_BITS_STATE = "hidden_bits.json"
# The weight of the term follows the error, in doublings of the target: a bound grows and falls as a power does. So much
# for the newest one as it will be so many steps ahead, one doubling at most (the optimizer's momentum goes on for some
# steps after the weight has changed), and so much for each that was less than one, together at most so much (on the way
# to a target, or where it is out of reach, they would pile up).
_PROPORTIONAL, _STEPS_AHEAD, _INTEGRAL, _MOST_OF_BEFORE = 4.0, 5.0, 0.15, 4.0
_FARTHEST = 4.0  # doublings; what is farther away counts as if it stood there


class HiddenBitsTarget(TrainerCallback):
    """Adds to the loss the bound of the hidden channel times a weight: above 0 where it is too high, else below.

    Args:
        trainer: a `GRPOTrainer` of a model with copies.
        target: bits per thinking token, as `hidden/bound` has them.

    Raises:
        UserError: no choice could be steered.
    """

    def __init__(self, trainer: Any, target: float) -> None:
        layout = trainer.policy.layout
        refuse_target(
            target, copies_differ=layout.size > 0 and layout.reasoning_rows != "frozen", limit=layout.hidden_bits
        )
        self._trainer, self._target = trainer, target
        self._of_step = torch.zeros(2, dtype=torch.float64)  # bits and thinking tokens
        self.weight = self._error = self._before = 0.0

    def term(
        self, copies_BC: torch.Tensor, capacity_BC: torch.Tensor, ids_BT: torch.Tensor, mask_BT: torch.Tensor
    ) -> torch.Tensor:
        """Of a micro-batch, with the gradient of its bound; arguments as `BatchMetrics.log_entropies` has them."""
        thinking_BT = (scored_regions(ids_BT, self._trainer.policy.layout) == THINKING) & mask_BT.bool()
        thinking_BC = thinking_BT[:, -copies_BC.size(1) :]
        bits, tokens = ((capacity_BC - copies_BC) * thinking_BC).sum() / math.log(2), thinking_BC.sum()
        self._of_step += torch.stack([bits.detach(), tokens]).double().cpu()
        return self.weight * bits / tokens.clamp(min=1)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        accelerator = self._trainer.accelerator
        bits, tokens = accelerator.reduce(self._of_step.to(accelerator.device), reduction="sum").tolist()
        self._of_step.zero_()
        if tokens:
            self._follow(bits / tokens)
        self._trainer._metrics["train"]["hidden/weight"].append(self.weight)

    def _follow(self, bound: float) -> None:
        error = _within(_FARTHEST, math.log2(max(bound / self._target, 2**-_FARTHEST)))
        ahead = error + _STEPS_AHEAD * (error - self._error)
        self._error = error
        if abs(error) < 1:
            self._before = _within(_MOST_OF_BEFORE, self._before + _INTEGRAL * error)
        self.weight = _PROPORTIONAL * _within(1.0, ahead) + self._before

    def save(self, folder: Path) -> None:
        state = {"weight": self.weight, "error": self._error, "before": self._before}
        (folder / HIDDEN_BITS_STATE).write_text(json.dumps(state) + "\n", encoding="utf-8")

    def restore(self, folder: Path) -> None:
        """Go on from a checkpoint; one that was written without a target begins anew."""
        file = folder / HIDDEN_BITS_STATE
        if file.exists():
            state = json.loads(file.read_text(encoding="utf-8"))
            self.weight, self._error, self._before = state["weight"], state["error"], state["before"]


def _within(most: float, value: float) -> float:
    return max(-most, min(most, value))
