"""TRL's GRPO trainer with checkpoints that are whole or absent, from which a run goes on as if it had never stopped."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import TrainerState
from transformers.trainer import TRAINER_STATE_NAME, TRAINING_ARGS_NAME
from trl import GRPOTrainer

from rlvr_vocab.errors import OutOfRoom, UserError
from rlvr_vocab.record.inventory import RunInventory, inventory_in, write_inventory
from rlvr_vocab.record.manifest import Entries
from rlvr_vocab.rewards.adaptive import AdaptiveWeight
from rlvr_vocab.training.checkpointing.checkpoints import newest_checkpoint_for_all
from rlvr_vocab.training.checkpointing.save import Save, bytes_to_write, clear_leftovers, save_whole
from rlvr_vocab.training.checkpointing.unfinished_step import (
    RestorePending,
    require_pending,
    restore_counts,
    save_pending,
)
from rlvr_vocab.training.completions import CompletionRows, remove_step_files_after
from rlvr_vocab.training.phase import PhaseTracker
from rlvr_vocab.training.reward_weights import RewardWeights
from rlvr_vocab.training.sharding import require_same_sharding
from rlvr_vocab.training.stage import Goal, RunPlace

logger = logging.getLogger(__name__)

OnFullDisk = Literal["stop", "go_on"]


class ResumableGRPOTrainer(GRPOTrainer):
    """GRPO that survives its process.

    Transformers writes a checkpoint into its final folder and resumes from whatever lies there; TRL forgets the
    completions that it has drawn and not yet trained on, and the order of the problems in later epochs. Here a
    checkpoint is written aside and renamed, and holds what is missing.

    Args:
        place: where in a run of several stages this trainer stands; by default it is the whole run.
        adaptive_weights: weights that follow success, by the name of their reward function.
        on_full_disk: end the training where a checkpoint has no room, or go on without it.

    Attributes:
        weights: the reward weights that follow success.
        seconds_before: seconds of training before the last resume.
        phases: what is going on, for words on a lack of memory.
    """

    def __init__(
        self,
        *args: Any,
        place: RunPlace,
        adaptive_weights: Mapping[str, AdaptiveWeight],
        on_full_disk: OnFullDisk,
        **kwargs: Any,
    ) -> None:
        self.place = place
        self.weights = RewardWeights(adaptive_weights)
        self.seconds_before = 0.0
        self.phases = PhaseTracker()
        self._on_full_disk = on_full_disk
        self._began = time.monotonic()
        self._rollouts: CompletionRows | None = None
        self._staging: Path | None = None
        self._saved_step: int | None = None
        self._finished_epochs = 0
        self._records: Entries = {}
        super().__init__(*args, **kwargs)
        self.add_callback(self.phases)

    @property
    def trained_seconds(self) -> float:
        """Seconds since the training began, without the time in which it stood still."""
        return self.seconds_before + time.monotonic() - self._began

    @property
    def newest_rollouts(self) -> CompletionRows | None:
        """The completions of the last generation, in all processes; None once a logged step has written them."""
        return self._rollouts

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any) -> Any:
        """Train; from a checkpoint on, exactly as the run that wrote it would have gone on; True: from the newest."""
        if resume_from_checkpoint is True:
            newest = newest_checkpoint_for_all(Path(self.args.output_dir))
            resume_from_checkpoint = None if newest is None else str(newest)
        if not isinstance(resume_from_checkpoint, str):
            self._clear_after(0)
            if self.place.first_step:
                self._records = RunInventory.of(self.place.run_folder).entries
            return super().train(resume_from_checkpoint, **kwargs)
        checkpoint = Path(resume_from_checkpoint)
        require_pending(checkpoint, self.args.world_size)
        require_same_sharding(checkpoint, self.accelerator.state)
        state = _state_of(checkpoint)
        self._clear_after(state.global_step)
        self._finished_epochs = int(state.epoch or 0)
        self._records = inventory_in(checkpoint)
        self.weights.restore(checkpoint)
        for name, value in self.weights.values().items():
            self.reward_weights[self.reward_func_names.index(name)] = value
        restore = RestorePending(self, checkpoint)
        self.add_callback(restore)
        try:
            return super().train(resume_from_checkpoint, **kwargs)
        finally:
            self.remove_callback(restore)

    def _clear_after(self, step: int) -> None:
        """Remove what a killed process left half-done, and what it wrote of steps that are now taken again."""
        self._began = time.monotonic()
        if self.args.should_save:
            clear_leftovers(Path(self.args.output_dir))
            remove_step_files_after(self.place.step(step), self.place.run_folder)
        self.accelerator.wait_for_everyone()

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        """TRL's order of the problems, moved on by the epochs that are over: it draws one after another."""
        sampler = super()._get_train_sampler(dataset)
        if sampler.shuffle:
            for _ in range(self._finished_epochs):
                torch.randperm(sampler.num_samples, generator=sampler.generator)
        return sampler

    def _get_output_dir(self, trial: Any) -> str:
        """Where checkpoints go: while one is written, the folder aside."""
        return super()._get_output_dir(trial) if self._staging is None else str(self._staging)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write a checkpoint that counts from the moment at which it is complete.

        Raises:
            OutOfRoom: the disk is full, and the training is to stop then.
        """
        if self._saved_step == self.state.global_step:
            return
        save = Save(
            output_dir=Path(self._get_output_dir(trial)),
            step=self.state.global_step,
            needed=bytes_to_write(self),
            keep=self.args.save_total_limit,
            best=self.state.best_global_step,
            publishes=self.args.should_save,
        )
        with self.phases.during("saving"):
            full = save_whole(save, lambda folder: self._write_checkpoint(folder, save, model, trial))
        if full is None:
            self._saved_step = save.step
            if self.args.push_to_hub:
                super()._push_from_checkpoint(str(save.output_dir / f"checkpoint-{save.step}"))
        elif self._on_full_disk == "go_on":
            logger.warning("%s; the training goes on without it", full)
        else:
            raise OutOfRoom(f"{full}. Make room and give the same command again, or set on_full_disk=go_on")

    def _write_checkpoint(self, folder: Path, save: Save, model: Any, trial: Any) -> None:
        model_alone, self._staging = self.args.save_only_model, folder.parent
        # A run that stops before its end is to go on from here.
        self.args.save_only_model = model_alone and not self._stops_early()
        try:
            super()._save_checkpoint(model, trial)
            if not self.args.save_only_model:
                save_pending(self, folder)
        finally:
            self.args.save_only_model, self._staging = model_alone, None
        if self.args.should_save:
            self.weights.save(folder)
            self._records = write_inventory(self.place.run_folder, folder, self._records)
            if save.best:  # Transformers has looked for it in the folder aside
                self.state.best_model_checkpoint = str(save.output_dir / f"checkpoint-{save.best}")
                self.state.save_to_json(str(folder / TRAINER_STATE_NAME))

    def _stops_early(self) -> bool:
        return self.control.should_training_stop and self.state.global_step < self.state.max_steps

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Their state from a checkpoint; rates and decay from the configuration, which may have been changed."""
        configured = settings_of(self.optimizer, self.lr_scheduler)
        super()._load_optimizer_and_scheduler(checkpoint)
        put_settings_back(configured, self.optimizer, self.lr_scheduler)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Not while it is written; `_save_checkpoint` does it once it counts."""

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, state_dict)
        # A pickle that nothing reads, with the user's token in it; config.yaml says the same.
        Path(output_dir or self.args.output_dir, TRAINING_ARGS_NAME).unlink(missing_ok=True)

    def save_checkpoint(self) -> None:
        """Write a checkpoint of the present step, where there is none yet."""
        step = self.state.global_step
        if self._saved_step != step and newest_checkpoint_for_all(Path(self.args.output_dir), at_step=step) is None:
            self._save_checkpoint(self.model, trial=None)

    def load_weights(self, checkpoint: Path) -> None:
        """Take over the weights of a checkpoint, and nothing else of it.

        Raises:
            UserError: DeepSpeed has the parameters in pieces, which only its own checkpoints fit.
        """
        if self.is_deepspeed_enabled:
            raise UserError(
                f"{checkpoint}: there is nothing left to train, and under DeepSpeed its weights cannot be taken over; "
                "the same command in one process writes what is left"
            )
        with self.phases.during("loading"):
            self._load_from_checkpoint(str(checkpoint))

    def stands_at_its_end(self, checkpoint: Path, goal: Goal | None = None) -> bool:
        """Take over a checkpoint after which there is nothing left to train; False where there is, and nothing done.

        Transformers would train one more step from a checkpoint of the last one.
        """
        state = _state_of(checkpoint)
        if self.args.max_steps > 0:
            last = state.global_step >= self.args.max_steps
        else:
            last = (state.epoch or 0) >= self.args.num_train_epochs
        over = last or (goal is not None and goal.reached(state.log_history))
        if over:
            best = self.args.load_best_model_at_end and state.best_global_step
            self.load_weights(checkpoint.with_name(f"checkpoint-{state.best_global_step}") if best else checkpoint)
            self.state = state
            restore_counts(self, checkpoint)
            self._began = time.monotonic()
        return over


def _state_of(checkpoint: Path) -> TrainerState:
    return TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))


# Of a group: what is trained, what the schedule makes of the rate, and what the rate was at first.
_NO_SETTINGS = ("params", "lr", "initial_lr")


def settings_of(optimizer: Any, scheduler: Any) -> tuple[list[dict[str, Any]], list[Any] | None]:
    """Each group's settings, such as weight decay, and the learning rates that the schedule starts from."""
    groups = [
        {name: value for name, value in group.items() if name not in _NO_SETTINGS} for group in optimizer.param_groups
    ]
    return groups, list(scheduler.base_lrs) if isinstance(scheduler, LambdaLR) else None


def put_settings_back(settings: tuple[list[dict[str, Any]], list[Any] | None], optimizer: Any, scheduler: Any) -> None:
    """Let optimizer and schedule go on as they were configured; where nothing differs, nothing is touched."""
    groups, rates = settings
    for group, configured in zip(optimizer.param_groups, groups, strict=True):
        group.update(configured)
    if rates is None or rates == scheduler.base_lrs:
        return
    scheduler.base_lrs = rates
    now = [rate * factor(scheduler.last_epoch) for rate, factor in zip(rates, scheduler.lr_lambdas, strict=True)]
    scheduler._last_lr = now
    for group, rate, initial in zip(optimizer.param_groups, now, rates, strict=True):
        group["lr"], group["initial_lr"] = rate, initial
