"""What a trainer holds in memory between two generations, written with a checkpoint and put back at a resume.

Transformers and TRL write the weights, the optimizer, the schedule and the random states. A run that is to go on as
if nothing had happened needs more: the completions that are still to be trained on, the figures that are still to be
logged, and how far each reward function has failed. Every process has its own.
"""

from __future__ import annotations

import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rlvr_vocab.errors import UserError
from rlvr_vocab.training.metrics.completions import CompletionRows

logger = logging.getLogger(__name__)


def save_unfinished_step(trainer: Any, folder: Path) -> None:
    """Write this process's share; every process calls it."""
    inside_a_buffer = trainer._step % (trainer.args.steps_per_generation * trainer.num_iterations) != 0
    content = {
        "batches": _batches(trainer),
        "step": trainer._step,
        "buffered_inputs": trainer._buffered_inputs if inside_a_buffer else None,
        "metrics": {name: list(values) for name, values in trainer._metrics["train"].items()},
        "loss": trainer._tr_loss,
        "last_logged": trainer._globalstep_last_logged,
        "rollouts": None if trainer.newest_rollouts is None else asdict(trainer.newest_rollouts),
        "reward_failures": {function.name: function.failures for function in _counting(trainer) if function.failures},
        "seconds": trainer.checkpoints.trained_seconds,
    }
    torch.save(content, _file(folder, trainer.accelerator.process_index))


def require_unfinished_step(checkpoint: Path, processes: int) -> None:
    """Refuse to go on from a checkpoint that lacks a piece; say it where other processes wrote it than are there now.

    Raises:
        UserError: the checkpoint holds weights alone.
    """
    written = len(list(checkpoint.glob("pending_*.pt")))
    if not written:
        raise UserError(
            f"{checkpoint} holds a model and no state of a training (save_only_model): nothing can go on from "
            "it; train anew, with it as the base model or from the beginning"
        )
    if written != processes:
        logger.warning(
            "%s was written by %d processes, and %d go on from it: with other random numbers, and with completions "
            "drawn anew",
            checkpoint,
            written,
            processes,
        )


def restore_counts(trainer: Any, checkpoint: Path) -> None:
    """Take over what a finished training has counted: failures of reward functions, and seconds."""
    content = _read(trainer, checkpoint)
    if content is None:
        return
    for function in _counting(trainer):
        function.failures = content["reward_failures"].get(function.name, 0)
    trainer.checkpoints.seconds_before = content["seconds"]


class RestoreUnfinishedStep(TrainerCallback):
    """Puts back what `save_unfinished_step` wrote, once the trainer has set up what it would begin with."""

    def __init__(self, trainer: Any, checkpoint: Path) -> None:
        self._trainer = trainer
        self._checkpoint = checkpoint

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        trainer = self._trainer
        content = _read(trainer, self._checkpoint)
        if content is None:
            return
        if content["batches"] == _batches(trainer):
            trainer._step = content["step"]
            trainer._buffered_inputs = content["buffered_inputs"]
        elif content["buffered_inputs"] is not None:
            logger.warning("the completions pending in %s are of another batch: drawn anew", self._checkpoint)
        trainer._metrics["train"].update(content["metrics"])
        trainer._tr_loss = content["loss"]
        trainer._globalstep_last_logged = content["last_logged"]
        trainer.newest_rollouts = None if content["rollouts"] is None else CompletionRows(**content["rollouts"])
        restore_counts(trainer, self._checkpoint)


def _file(folder: Path, process: int) -> Path:
    return folder / f"pending_{process}.pt"


def _read(trainer: Any, checkpoint: Path) -> dict[str, Any] | None:
    """This process's share; None where another number of processes has written the checkpoint."""
    file = _file(checkpoint, trainer.accelerator.process_index)
    if not file.exists():
        return None
    device = trainer.accelerator.device  # of several processes on a CPU each has a number, which torch cannot read
    content: dict[str, Any] = torch.load(
        file, map_location="cpu" if device.type == "cpu" else device, weights_only=True
    )
    return content


def _batches(trainer: Any) -> list[int]:
    """What decides which part of a buffer is trained on when."""
    args = trainer.args
    return [args.per_device_train_batch_size, args.steps_per_generation, trainer.num_iterations, args.world_size]


def _counting(trainer: Any) -> list[Any]:
    """The reward functions that count their failures."""
    return [function for function in trainer.reward_funcs if hasattr(function, "failures")]
