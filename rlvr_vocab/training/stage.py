"""The stage of a run that a trainer trains: the steps and rows of the whole run, and its early end.

A logged row goes to `metrics.jsonl`, and to each tracker of `report_to` with the steps of the whole run.
"""

from __future__ import annotations

import copy
import json
import logging
import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate.utils import gather_object
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState
from transformers.integrations import TensorBoardCallback
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from rlvr_vocab.errors import UserError, block_signals_in_children, stop_signals
from rlvr_vocab.files import atomic_write, json_text, read_json_if_there
from rlvr_vocab.record.files import TENSORBOARD, TRACKERS
from rlvr_vocab.record.metrics import read_metrics
from rlvr_vocab.text import did_you_mean
from rlvr_vocab.training.settings import UntilSettings

logger = logging.getLogger(__name__)


@dataclass
class StageContext:
    """The folder of the whole run, the name of the stage (empty in a run in one piece), the steps before it."""

    run_folder: Path
    stage: str = ""
    first_step: int = 0

    def run_step(self, stage_step: int) -> int:
        """The step of the run that a step of the stage is."""
        return self.first_step + stage_step


def logged_row(context: StageContext, step: int, logs: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The row of a run that is logged at a step of its stage; None for the trainer's closing summary."""
    if not logs or "train_runtime" in logs:
        return None
    row: dict[str, Any] = {"step": context.run_step(step)}
    if context.stage:
        row |= {"stage": context.stage, "stage_step": step}
    for key, value in logs.items():
        if key != "step":  # of the stage, in a trainer's history
            no_number = isinstance(value, float) and not math.isfinite(value)  # JSON has no NaN and no infinity
            row[re.sub("^eval_", "eval/", key)] = None if no_number else value  # the names of W&B
    return row


class MetricsFile(TrainerCallback):
    """Appends every logged row to `metrics.jsonl`, under the names that W&B shows."""

    def __init__(self, path: Path, context: StageContext) -> None:
        self.path = path
        self._context = context

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Begin with the rows until now: those of later steps will be written again."""
        if state.is_world_process_zero:
            write_rows_until_now(self.path, self._context, state)

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, logs: Any = None, **_: Any) -> None:
        row = logged_row(self._context, state.global_step, logs)
        if state.is_world_process_zero and row is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def write_rows_until_now(path: Path, context: StageContext, state: TrainerState) -> None:
    """Write the rows of earlier stages, and those of this one as its checkpoint has them."""
    rows = [row for row in read_metrics(path) if row["step"] <= context.first_step] if context.first_step else []
    if context.first_step and not rows:
        logger.warning("%s: the rows of earlier stages are lost", path)
    for logs in state.log_history:
        row = logged_row(context, logs["step"], logs)
        rows += [] if row is None else [row]
    if rows or path.exists():
        atomic_write(path, "".join(f"{json.dumps(row)}\n" for row in rows))


# --- trackers: W&B, TensorBoard, trackio, MLflow and the others of `report_to` ---


def tracker_records(run_folder: Path) -> dict[str, Any]:
    """By tracker the `last_step` whose row it was sent, and the `id` of its run if it has one: `trackers.json`."""
    return read_json_if_there(run_folder / TRACKERS) or {}


def record_tracker(run_folder: Path, tracker: str, **facts: Any) -> None:
    records = tracker_records(run_folder)
    atomic_write(run_folder / TRACKERS, json_text({**records, tracker: {**records.get(tracker, {}), **facts}}))


def start_trackers(
    run_folder: Path, trackers: Sequence[str], project: str | None, name: str | None, **wandb: Any
) -> bool:
    """Start or resume the run of W&B and of MLflow, where none is active; the others need no start.

    `project` is the experiment in MLflow, which `MLFLOW_EXPERIMENT_NAME` overrides; `wandb` goes to `wandb.init`.
    Returns whether a run of MLflow was started, which its callback then leaves active.
    """
    records, starts_mlflow = tracker_records(run_folder), False
    if "wandb" in trackers:
        import wandb as weights_and_biases

        known = records.get("wandb", {}).get("id")
        with block_signals_in_children():
            started = weights_and_biases.run or weights_and_biases.init(
                project=project, name=name, id=known, resume="allow", **wandb
            )
        record_tracker(run_folder, "wandb", id=started.id)
    if "mlflow" in trackers:
        import mlflow

        active = mlflow.active_run()
        if starts_mlflow := active is None:
            if (experiment := os.environ.get("MLFLOW_EXPERIMENT_NAME", project)) is not None:
                mlflow.set_experiment(experiment)
            active = mlflow.start_run(run_id=records.get("mlflow", {}).get("id"), run_name=name)
        record_tracker(run_folder, "mlflow", id=active.info.run_id)
    return starts_mlflow


def count_run_steps(trainer: Trainer, context: StageContext) -> None:
    """Let each tracker count steps through stages and resumes, and be sent no row twice."""
    for tracker, kind in INTEGRATION_TO_CALLBACK.items():
        for callback in trainer.callback_handler.callbacks:
            if type(callback) is kind:
                callback.on_log = _SendsOnce(callback.on_log, tracker, context)
                if isinstance(callback, TensorBoardCallback):  # else each resume would be a run of its own there
                    callback.logging_dir = callback.logging_dir or str(context.run_folder / TENSORBOARD)


class _SendsOnce:
    """A tracker's `on_log` at the step of the run, without rows that it was sent before a resume."""

    def __init__(self, send: Callable[..., object], tracker: str, context: StageContext) -> None:
        self._send, self._tracker, self._context = send, tracker, context

    def __call__(self, args: Any, state: TrainerState, control: TrainerControl, logs: Any = None, **more: Any) -> None:
        step, folder = self._context.run_step(state.global_step), self._context.run_folder
        records = tracker_records(folder) if state.is_world_process_zero else {}
        of_a_step, of_an_evaluation = "loss" in (logs or {}), any(name.startswith("eval_") for name in logs or ())
        last = records.get(self._tracker, {}).get("last_step", 0)
        if (of_a_step and step <= last) or (of_an_evaluation and step < last):  # it comes after the row of its step
            return
        state = copy.copy(state)
        state.global_step = step
        self._send(args, state, control, logs=logs, **more)
        if of_a_step and state.is_world_process_zero:
            record_tracker(folder, self._tracker, last_step=step)


class AtTrainBegin(TrainerCallback):
    """Calls a function when a training begins, with the model sharded and the trainer's start values set."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._work()


# A stage's first logged step may lack these: they are measured at times, or only where completions have such tokens.
_MAY_COME_LATER = re.compile(
    r"kl(/ids)?|groups/reward_std|rewards/.*/(failures|timeouts|unscored)|(time|memory)/\w+|answering/mean_length"
    r"|thinking/(mean_length|closed|reasoning_share)|(sampling/)?entropy/(text|thinking|answering|copies)"
    r"|sampling/logp_gap|hidden/(capacity|bound|bound_per_thought)"
)


class StopEarly(TrainerCallback):
    """Stops the training at the first logged step that reaches the goal; UserError where no step logs its metric."""

    def __init__(self, until: UntilSettings) -> None:
        self._until = until

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, logs: Any = None, **_: Any) -> None:
        metric, history = self._until.metric, state.log_history
        if logs and "loss" in logs and not metric.startswith("eval/") and not _MAY_COME_LATER.fullmatch(metric):
            names = {name for row in history for name in row}
            if metric not in names:
                near = did_you_mean(metric, sorted(names)) or f"; there are {', '.join(sorted(names))}"
                raise UserError(f"until.metric={metric}: no step logs that{near}")
        if logs and ("loss" in logs or "eval_problems" in logs) and self._until.reached(history):
            control.should_training_stop = True


class StopOnSignalOrTime(TrainerCallback):
    """Stops a training after its present step; `reason` is then `SIGTERM` or such, or `max_hours=…`."""

    def __init__(self, max_hours: float | None = None) -> None:
        self.reason: str | None = None
        self._max_hours = max_hours
        self._deadline = math.inf if max_hours is None else time.monotonic() + 3600 * max_hours

    def on_step_begin(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        stop_signals.defer_signals = True

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        stop_signals.defer_signals = False

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """All processes stop after the same step, whichever of them got the signal."""
        time_is_up = f"max_hours={self._max_hours:g}" if time.monotonic() >= self._deadline else None
        self.reason = next(filter(None, gather_object([stop_signals.reason or time_is_up])), None)
        if self.reason is not None:
            control.should_save = control.should_training_stop = True
