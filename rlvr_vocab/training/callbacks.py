"""What a run tells while it trains: a row of metrics on disk per logged step, and a live line of figures."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rlvr_vocab.atomic_file import write_whole
from rlvr_vocab.training.place import RunPlace

# What a person wants to see of a step, in this order: name on the screen, key of the metric, format.
FIGURES = (
    ("reward", "reward", "{:.2f}"),
    ("accuracy", "rewards/accuracy/mean", "{:.2f}"),
    ("reasoning tokens", "thinking/reasoning_share", "{:.0%}"),
    ("length", "completions/mean_length", "{:.0f}"),
    ("kl", "kl", "{:.3f}"),
)


class MetricsFile(TrainerCallback):
    """Appends every logged row to `metrics.jsonl`, under the names that W&B sees.

    In a run of several stages a row's `step` counts through all of them; `stage` names the one it belongs to and
    `stage_step` counts within it.
    """

    def __init__(self, path: Path, place: RunPlace) -> None:
        self.path = path
        self._place = place

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Drop rows past the step that training starts from: they are about to be written again."""
        if state.is_world_process_zero and self.path.exists():
            rows = _whole_rows(self.path)
            kept = [json.dumps(row) for row in rows if row["step"] <= self._place.step(state.global_step)]
            write_whole(self.path, "".join(f"{row}\n" for row in kept))

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        if not state.is_world_process_zero or not logs or "train_runtime" in logs:
            return
        row = {**self._place.columns(state.global_step), **{key: _json_number(value) for key, value in logs.items()}}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


class LiveFigures(TrainerCallback):
    """Hands the figures of each logged step to a display."""

    def __init__(self, show: Callable[[int, int, dict[str, str]], None]) -> None:
        self._show = show

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        if state.is_world_process_zero and logs and "loss" in logs:
            values = {name: (logs.get(key), form) for name, key, form in FIGURES}
            figures = {name: form.format(float(value)) for name, (value, form) in values.items() if value is not None}
            self._show(state.global_step, state.max_steps, figures)


def _whole_rows(path: Path) -> list[dict[str, Any]]:
    """Rows up to one that a killed run left half-written."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def _json_number(value: Any) -> Any:
    """JSON has no NaN and no infinity: they are written as null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
