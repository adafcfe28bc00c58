"""Which stage of a run a trainer trains, and when the stage ends early."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rlvr_vocab.training.settings import UntilSettings


@dataclass(frozen=True)
class StageContext:
    """The folder of the whole run, the name of the stage (empty in a run in one piece), the steps before it."""

    run_folder: Path
    stage: str = ""
    first_step: int = 0

    def run_step(self, stage_step: int) -> int:
        """The step of the run that a step of the stage is."""
        return self.first_step + stage_step

    def columns(self, stage_step: int) -> dict[str, Any]:
        """What a row of metrics says of its step."""
        step = {"step": self.run_step(stage_step)}
        return {**step, "stage": self.stage, "stage_step": stage_step} if self.stage else step


class StopEarly(TrainerCallback):
    """Stops the training at the first logged step that reaches the goal.

    It looks at the logged history alone, which a checkpoint holds: a resumed stage stops at the same step.
    """

    def __init__(self, until: UntilSettings) -> None:
        self._until = until

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        if logs and "loss" in logs and self._until.reached(state.log_history):
            control.should_training_stop = True
