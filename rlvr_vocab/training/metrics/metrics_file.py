"""Writes `metrics.jsonl`: a row for each logged step."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rlvr_vocab.atomic_file import write_whole
from rlvr_vocab.record.metrics import read_metrics
from rlvr_vocab.training.stage import StageContext


def logged_row(context: StageContext, state: TrainerState, logs: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The row of a run that is logged at the present step; None for what the trainer says of itself at the end."""
    if not logs or "train_runtime" in logs:
        return None
    named = {re.sub("^eval_", "eval/", key): _json_number(value) for key, value in logs.items()}  # as W&B names them
    return {**context.columns(state.global_step), **named}


class MetricsFile(TrainerCallback):
    """Appends every logged row to `metrics.jsonl`, under the names that W&B sees.

    In a run of several stages a row's `step` counts through all of them; `stage` names the one it belongs to and
    `stage_step` counts within it.
    """

    def __init__(self, path: Path, context: StageContext) -> None:
        self.path = path
        self._context = context

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Drop rows past the step that training starts from: they are about to be written again."""
        if state.is_world_process_zero and self.path.exists():
            last = self._context.run_step(state.global_step)
            kept = [json.dumps(row) for row in read_metrics(self.path) if row["step"] <= last]
            write_whole(self.path, "".join(f"{row}\n" for row in kept))

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        row = logged_row(self._context, state, logs)
        if state.is_world_process_zero and row is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def _json_number(value: Any) -> Any:
    """JSON has no NaN and no infinity: they are written as null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
