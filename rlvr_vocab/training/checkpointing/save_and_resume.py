"""The checkpoints of a trainer: whole or absent, and resumed as if the training had never stopped."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import TrainerState
from transformers.trainer import TRAINER_STATE_NAME

from rlvr_vocab.errors import OutOfRoom, UserError
from rlvr_vocab.training.checkpointing.find import newest_checkpoint_for_all
from rlvr_vocab.training.checkpointing.rollout_state import (
    RestoreUnfinishedStep,
    require_unfinished_step,
    restore_counts,
    save_unfinished_step,
)
from rlvr_vocab.training.checkpointing.write import clear_leftovers, save_whole
from rlvr_vocab.training.metrics.completions import remove_step_files_after
from rlvr_vocab.training.metrics.peak_memory import peak_memory
from rlvr_vocab.training.settings import UntilSettings
from rlvr_vocab.training.sharding import require_same_sharding
from rlvr_vocab.vocab.peft.adapter_base import other_weights

logger = logging.getLogger(__name__)

OnFullDisk = Literal["stop", "go_on"]


class TrainerCheckpoints:
    """Saves the state of a `RegionGRPOTrainer`, and takes it over from a checkpoint.

    Transformers writes a checkpoint into its final folder and resumes from whatever lies there; TRL forgets the
    completions that it has drawn and not yet trained on, and the order of the problems in later epochs. Here a
    checkpoint is written aside and renamed, and holds what is missing.

    Args:
        on_full_disk: end the training where a checkpoint has no room, or go on without it.

    Attributes:
        staging: the folder in which a checkpoint is being written; None at other times.
        seconds_before: seconds of training before the last resume.
    """

    def __init__(self, trainer: Any, on_full_disk: OnFullDisk) -> None:
        self.staging: Path | None = None
        self.seconds_before = 0.0
        self._trainer, self._on_full_disk = trainer, on_full_disk
        self._began = time.monotonic()
        self._saved_step: int | None = None
        self._finished_epochs = 0

    @property
    def trained_seconds(self) -> float:
        """Seconds of training, over all resumes."""
        return self.seconds_before + time.monotonic() - self._began

    @property
    def output_dir(self) -> Path:
        return Path(self._trainer.args.output_dir)

    @contextmanager
    def resuming(self, checkpoint: Path | None) -> Iterator[None]:
        """Inside the block a training goes on from a checkpoint, or begins where it is None."""
        if checkpoint is None:
            self._remove_after(0)
            yield
            return
        require_unfinished_step(checkpoint, self._trainer.args.world_size)
        other = other_weights(checkpoint, self._trainer.initial_model)
        if other is not None:
            raise UserError(other)
        require_same_sharding(checkpoint, self._trainer.accelerator.state)
        state = _state_of(checkpoint)
        self._remove_after(state.global_step)
        self._finished_epochs = int(state.epoch or 0)
        self._trainer.adaptive_weights.restore(checkpoint)
        self._trainer.apply_adaptive_weights()
        self._restore_order(checkpoint)
        restore = RestoreUnfinishedStep(self._trainer, checkpoint)
        self._trainer.add_callback(restore)
        try:
            yield
        finally:
            self._trainer.remove_callback(restore)

    def _restore_order(self, checkpoint: Path) -> None:
        if self._trainer.dynamic_sampling is not None:
            self._trainer.dynamic_sampling.order.restore(checkpoint)

    def _remove_after(self, step: int) -> None:
        """Remove what a killed process left half-done, and what it wrote of steps that are now taken again."""
        self._began = time.monotonic()
        if self._trainer.args.should_save:
            context = self._trainer.stage_context
            clear_leftovers(self.output_dir)
            remove_step_files_after(context.run_step(step), context.run_folder)
        self._trainer.accelerator.wait_for_everyone()

    def skip_finished_epochs(self, sampler: Any) -> Any:
        """TRL's sampler of problems, moved on by the epochs that are over: it draws one order after another."""
        if sampler.shuffle:
            for _ in range(self._finished_epochs):
                torch.randperm(sampler.num_samples, generator=sampler.generator)
        return sampler

    @peak_memory.phase("saving")
    def save(self, write: Callable[[], None], push: Callable[[str], None]) -> None:
        """Write a checkpoint of the present step, which is valid from the moment at which it is complete.

        Args:
            write: writes what Transformers and TRL save, into `staging`.
            push: sends a folder to the hub.

        Raises:
            OutOfRoom: the disk is full, and the training is to stop then.
        """
        args, state = self._trainer.args, self._trainer.state
        if self._saved_step == state.global_step:
            return
        full = save_whole(
            self.output_dir,
            state.global_step,
            lambda folder: self._write(folder, write),
            publishes=args.should_save,
            keep=args.save_total_limit,
            best=state.best_global_step,
        )
        if full is None:
            self._saved_step = state.global_step
            if args.push_to_hub:
                push(str(self.output_dir / f"checkpoint-{state.global_step}"))
        elif self._on_full_disk == "go_on":
            logger.warning("%s; the training goes on without it", full)
        else:
            raise OutOfRoom(f"{full}. Make room and give the same command again, or set on_full_disk=go_on")

    def _write(self, folder: Path, write: Callable[[], None]) -> None:
        trainer = self._trainer
        args, state = trainer.args, trainer.state
        model_alone, self.staging = args.save_only_model, folder.parent
        # A run that stops before its end is to go on from here.
        stops_early = trainer.control.should_training_stop and state.global_step < state.max_steps
        args.save_only_model = model_alone and not stops_early
        try:
            write()
            if not args.save_only_model:
                save_unfinished_step(trainer, folder)
        finally:
            args.save_only_model, self.staging = model_alone, None
        if args.should_save:
            trainer.adaptive_weights.save(folder)
            if trainer.dynamic_sampling is not None:
                trainer.dynamic_sampling.order.save(folder)
            if state.best_global_step:  # Transformers has looked for it in the folder aside
                state.best_model_checkpoint = str(self.output_dir / f"checkpoint-{state.best_global_step}")
                state.save_to_json(str(folder / TRAINER_STATE_NAME))

    def save_now(self) -> None:
        """Write a checkpoint of the present step, where there is none yet."""
        step = self._trainer.state.global_step
        if self._saved_step != step and newest_checkpoint_for_all(self.output_dir, at_step=step) is None:
            self._trainer._save_checkpoint(self._trainer.model, trial=None)

    def load_weights(self, checkpoint: Path) -> None:
        """Take over the weights of a checkpoint, and nothing else of it.

        Raises:
            UserError: DeepSpeed has the parameters in pieces, which only its own checkpoints fit.
        """
        if self._trainer.is_deepspeed_enabled:
            raise UserError(
                f"{checkpoint}: there is nothing left to train, and under DeepSpeed its weights cannot be taken over; "
                "the same command in one process writes what is left"
            )
        self._trainer._load_from_checkpoint(str(checkpoint))

    def load_end(self, checkpoint: Path, until: UntilSettings | None = None) -> bool:
        """Take over a checkpoint after which nothing is left to train; False where something is, and nothing is done.

        Transformers would train one more step from a checkpoint of the last one.
        """
        trainer, state = self._trainer, _state_of(checkpoint)
        if trainer.args.max_steps > 0:
            last = state.global_step >= trainer.args.max_steps
        else:
            last = (state.epoch or 0) >= trainer.args.num_train_epochs
        over = last or (until is not None and until.reached(state.log_history))
        if over:
            best = trainer.args.load_best_model_at_end and state.best_global_step
            self.load_weights(checkpoint.with_name(f"checkpoint-{state.best_global_step}") if best else checkpoint)
            trainer.state = state
            restore_counts(trainer, checkpoint)
            self._restore_order(checkpoint)
            self._began = time.monotonic()
        return over


def _state_of(checkpoint: Path) -> TrainerState:
    return TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))


# Of a group: what is trained, what the schedule makes of the rate, and what the rate was at first.
_NO_SETTINGS = ("params", "lr", "initial_lr")


@contextmanager
def keeping_configured_settings(optimizer: Any, scheduler: Any) -> Iterator[None]:
    """Inside the block states are loaded; learning rates and settings such as weight decay stay as configured."""
    configured = [
        {name: value for name, value in group.items() if name not in _NO_SETTINGS} for group in optimizer.param_groups
    ]
    rates = list(scheduler.base_lrs) if isinstance(scheduler, LambdaLR) else None
    yield
    for group, settings in zip(optimizer.param_groups, configured, strict=True):
        group.update(settings)
    if rates is None or rates == scheduler.base_lrs:
        return
    scheduler.base_lrs = rates
    now = [rate * factor(scheduler.last_epoch) for rate, factor in zip(rates, scheduler.lr_lambdas, strict=True)]
    scheduler._last_lr = now
    for group, rate, initial in zip(optimizer.param_groups, now, rates, strict=True):
        group["lr"], group["initial_lr"] = rate, initial
