"""Writes `metrics.jsonl`: a row for each logged step."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rlvr_vocab.files import atomic_write
from rlvr_vocab.record.metrics import read_metrics
from rlvr_vocab.training.stage import StageContext

logger = logging.getLogger(__name__)


def logged_row(context: StageContext, step: int, logs: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The row of a run that is logged at a step of its stage; None for what the trainer says of itself at the end."""
    if not logs or "train_runtime" in logs:
        return None
    named = {re.sub("^eval_", "eval/", key): _json_number(value) for key, value in logs.items()}  # as W&B names them
    return {**context.columns(step), **named}


class MetricsFile(TrainerCallback):
    """Appends every logged row to `metrics.jsonl`, under the names that W&B sees.

    In a run of several stages a row's `step` counts through all of them; `stage` names the one it belongs to and
    `stage_step` counts within it.
    """

    def __init__(self, path: Path, context: StageContext) -> None:
        self.path = path
        self._context = context

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Begin with the rows until now: those of later steps are about to be written again."""
        if state.is_world_process_zero:
            write_rows_until_now(self.path, self._context, state)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        row = logged_row(self._context, state.global_step, logs)
        if state.is_world_process_zero and row is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def write_rows_until_now(path: Path, context: StageContext, state: TrainerState) -> None:
    """Write the rows of the stage until now as its checkpoint has them, after those of earlier stages in the file."""
    rows = [row for row in read_metrics(path) if row["step"] <= context.first_step] if context.first_step else []
    if context.first_step and not rows:
        logger.warning("%s: the rows of earlier stages are lost", path)
    for entry in state.log_history:
        logs = {key: value for key, value in entry.items() if key != "step"}
        row = logged_row(context, entry["step"], logs)
        rows += [] if row is None else [row]
    if rows or path.exists():
        atomic_write(path, "".join(f"{json.dumps(row)}\n" for row in rows))


def _json_number(value: Any) -> Any:
    """JSON has no NaN and no infinity: they are written as null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
