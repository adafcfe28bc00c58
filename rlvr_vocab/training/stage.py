"""The stage of a run that a trainer trains, and its early end: a goal, a signal, the clock."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate.utils import gather_object
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rlvr_vocab.signals import stop_signals
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
        """The columns of a row of metrics that name its step."""
        step = {"step": self.run_step(stage_step)}
        return {**step, "stage": self.stage, "stage_step": stage_step} if self.stage else step


class StopEarly(TrainerCallback):
    """Stops the training at the first logged step that reaches the goal, by the history that a checkpoint holds."""

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
        if logs and ("loss" in logs or "eval_problems" in logs) and self._until.reached(state.log_history):
            control.should_training_stop = True


class StopOnSignalOrTime(TrainerCallback):
    """Stops a training after its present step; `reason` is then `SIGTERM` or such, or `max_hours=…`."""

    def __init__(self, max_hours: float | None = None) -> None:
        self.reason: str | None = None
        self._max_hours = max_hours
        self._deadline = float("inf") if max_hours is None else time.monotonic() + 3600 * max_hours

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        stop_signals.defer_signals = True

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        stop_signals.defer_signals = False

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """All processes stop after the same step, whichever of them got the signal."""
        time_is_up = f"max_hours={self._max_hours:g}" if time.monotonic() >= self._deadline else None
        reasons = [reason for reason in gather_object([stop_signals.reason or time_is_up]) if reason is not None]
        if reasons:
            self.reason = reasons[0]
            control.should_save = control.should_training_stop = True
