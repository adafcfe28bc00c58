"""What a run tells while it trains: a row of metrics on disk per logged step."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rlvr_vocab.atomic_file import write_whole
from rlvr_vocab.errors import UserError
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
            rows = _whole_rows(self.path)
            kept = [json.dumps(row) for row in rows if row["step"] <= self._context.run_step(state.global_step)]
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


def _whole_rows(path: Path) -> list[dict[str, Any]]:
    """Rows up to one that a killed run left half-written.

    Raises:
        UserError: a line before the last one is none.
    """
    rows = []
    lines = path.read_bytes().splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            rows.append({**row, "step": int(row["step"])})
        except (ValueError, TypeError, KeyError) as error:  # UnicodeDecodeError among them
            if number < len(lines):
                raise UserError(f"{path}: line {number} is damaged ({error}); delete it to go on without it") from error
    return rows


def _json_number(value: Any) -> Any:
    """JSON has no NaN and no infinity: they are written as null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
