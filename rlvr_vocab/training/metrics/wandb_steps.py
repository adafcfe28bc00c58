"""Weights & Biases over a whole run: steps counted through its stages, one run over all resumes, no row sent twice.

`wandb.json` in the run's folder holds the id of the W&B run and the last step whose row it was sent.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations import WandbCallback

from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_write, json_text, read_json_if_there
from rlvr_vocab.record.files import WANDB
from rlvr_vocab.training.stage import StageContext


def recorded_wandb(run_folder: Path) -> dict[str, Any]:
    """What is known of the run in W&B; empty where it has not begun there.

    Raises:
        UserError: the file is damaged.
    """
    path = run_folder / WANDB
    known = read_json_if_there(path, {"id": str, "last_step": int}) or {}
    if known and known.keys() < {"id", "last_step"}:
        raise UserError(f"{path} is damaged: delete it, and this run goes on as a new one in Weights & Biases")
    return known


def record_wandb(run_folder: Path, run_id: str, last_step: int) -> None:
    atomic_write(run_folder / WANDB, json_text({"id": run_id, "last_step": last_step}))


def log_run_steps_to_wandb(trainer: Trainer, context: StageContext) -> None:
    """Let Weights & Biases, where it is on, count through stages and resumes."""
    if trainer.pop_callback(WandbCallback) is not None:
        trainer.add_callback(RunStepsCallback(context))


class RunStepsCallback(WandbCallback):
    def __init__(self, context: StageContext) -> None:
        super().__init__()
        self._context = context

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Send a row, unless it was sent before the run was resumed from an earlier step."""
        step = self._context.run_step(state.global_step)
        known = recorded_wandb(self._context.run_folder) if state.is_world_process_zero else {}
        a_step = logs is not None and "loss" in logs
        of_an_evaluation = logs is not None and "eval_problems" in logs  # sent after the row of its step
        last = known.get("last_step", 0)
        if (a_step and step <= last) or (of_an_evaluation and step < last):
            return
        state = copy.copy(state)
        state.global_step = step
        super().on_log(args, state, control, model, logs, **kwargs)
        if a_step and known:
            record_wandb(self._context.run_folder, known["id"], step)
