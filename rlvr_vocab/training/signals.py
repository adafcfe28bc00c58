"""Ends a training in good order: at a signal, or when its time is up, the step is finished and saved."""

from __future__ import annotations

import time
from typing import Any

from accelerate.utils import gather_object
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rlvr_vocab.stop_signals import stop_signals


class Interruption(TrainerCallback):
    """Stops a training after its present step.

    Args:
        max_hours: stop after so many hours.

    Attributes:
        reason: why the training was stopped, such as `SIGTERM`; None as long as it goes on.
    """

    def __init__(self, max_hours: float | None = None) -> None:
        self.reason: str | None = None
        self._max_hours = max_hours
        self._deadline = float("inf") if max_hours is None else time.monotonic() + 3600 * max_hours

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        stop_signals.finishes_first = True

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        stop_signals.finishes_first = False

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """All processes stop after the same step, whichever of them was told to."""
        time_is_up = f"max_hours={self._max_hours:g}" if time.monotonic() >= self._deadline else None
        reasons = [reason for reason in gather_object([stop_signals.reason or time_is_up]) if reason is not None]
        if reasons:
            self.reason = reasons[0]
            control.should_save = control.should_training_stop = True
