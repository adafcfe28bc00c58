"""Where a trainer stands in a run of several stages: which stage it trains, and how many steps went before."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations import WandbCallback


@dataclass(frozen=True)
class RunPlace:
    """The folder of the whole run, the name of the stage (empty in a run in one piece), the steps before it."""

    run_folder: Path
    stage: str = ""
    first_step: int = 0

    def step(self, stage_step: int) -> int:
        """The step of the run that a step of the stage is."""
        return self.first_step + stage_step

    def columns(self, stage_step: int) -> dict[str, Any]:
        """What says of a row to which step it belongs."""
        step = {"step": self.step(stage_step)}
        return {**step, "stage": self.stage, "stage_step": stage_step} if self.stage else step


def count_steps_of_the_run(trainer: Trainer, place: RunPlace) -> None:
    """Let Weights & Biases, where it is on, count through the stages."""
    if place.first_step and trainer.pop_callback(WandbCallback) is not None:
        trainer.add_callback(_WandbOfAStage(place.first_step))


class _WandbOfAStage(WandbCallback):
    def __init__(self, first_step: int) -> None:
        super().__init__()
        self._first_step = first_step

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *rest: Any, **kwargs: Any
    ) -> None:
        state = copy.copy(state)
        state.global_step += self._first_step
        super().on_log(args, state, control, *rest, **kwargs)
