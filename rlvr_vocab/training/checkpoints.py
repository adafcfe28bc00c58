"""The checkpoints of a trainer, from which a training goes on to the bit.

Transformers and TRL write weights, optimizer, schedule and random states. `pending_<process>.pt` holds the rest: the
completions that are still to be trained on, the metrics that are still to be logged, the order of the problems, the
adaptive weights and the failures of reward functions.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from accelerate import PartialState
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from transformers import TrainerState
from transformers.trainer import TRAINER_STATE_NAME

from rlvr_vocab.errors import OutOfRoom, UserError
from rlvr_vocab.text import pluralize
from rlvr_vocab.training.checkpoint_folders import clear_leftovers, save_whole, steps_in
from rlvr_vocab.training.metrics.completions import remove_step_files_after
from rlvr_vocab.training.metrics.step_clock import peak_memory
from rlvr_vocab.training.settings import UntilSettings
from rlvr_vocab.training.sharding import require_same_sharding
from rlvr_vocab.vocab.weights import other_weights

logger = logging.getLogger(__name__)

OnFullDisk = Literal["stop", "go_on"]


class TrainerCheckpoints:
    """Saves the state of a `RegionGRPOTrainer`; `seconds_before` are of the training before the last resume."""

    seconds_before = 0.0
    _saved_step: int | None = None
    _finished_epochs = 0
    _resumed: Path | None = None

    def __init__(self, trainer: Any, on_full_disk: OnFullDisk) -> None:
        self._trainer, self._on_full_disk = trainer, on_full_disk
        self._began = time.monotonic()

    @property
    def trained_seconds(self) -> float:
        """Seconds of training, over all resumes."""
        return self.seconds_before + time.monotonic() - self._began

    @property
    def output_dir(self) -> Path:
        return Path(self._trainer.args.output_dir)

    # --- resuming ---

    def require_resumable(self, checkpoint: Path) -> None:
        """UserError where a training cannot go on from a checkpoint; a warning where it goes on otherwise."""
        written, processes = len(list(checkpoint.glob("pending_*.pt"))), self._trainer.args.world_size
        if not written:
            raise UserError(
                f"{checkpoint} holds no state of a training (save_only_model): train anew, from it as the base model"
            )
        if written != processes and PartialState().is_main_process:
            logger.warning(
                f"{checkpoint}: written by {pluralize(written, 'process', 'processes')}, resumed by {processes}: "
                "random numbers differ, and pending completions are drawn anew"
            )
        if other := other_weights(checkpoint, self._trainer.initial_model):
            raise UserError(other)
        require_same_sharding(checkpoint, self._trainer.accelerator.state)

    def prepare_start(self, checkpoint: Path | None) -> None:
        """Check that a training can go on from a checkpoint, or from its beginning where it is None.

        Leftovers of a killed process are removed, and so are its files of steps that are now taken again.
        """
        trainer, state = self._trainer, TrainerState()
        if checkpoint is not None:
            self.require_resumable(checkpoint)
            state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
        self._resumed, self._finished_epochs = checkpoint, int(state.epoch or 0)
        self._began = time.monotonic()
        if trainer.args.should_save:
            clear_leftovers(self.output_dir)
            context = trainer.stage_context
            remove_step_files_after(context.run_step(state.global_step), context.run_folder)
        trainer.accelerator.wait_for_everyone()

    def skip_finished_epochs(self, sampler: Any) -> Any:
        """TRL's sampler of problems, moved on by the finished epochs: it draws one order after another."""
        if sampler.shuffle:
            for _ in range(self._finished_epochs):
                torch.randperm(sampler.num_samples, generator=sampler.generator)
        return sampler

    @contextmanager
    def keeping_configured_settings(self) -> Iterator[None]:
        """Inside the block optimizer and schedule are loaded; rates, weight decay and such stay as configured."""
        optimizer, scheduler = self._trainer.optimizer, self._trainer.lr_scheduler
        configured = [
            {name: value for name, value in group.items() if name not in ("params", "lr", "initial_lr")}
            for group in optimizer.param_groups
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

    def load_weights(self, checkpoint: Path) -> None:
        """Load the weights of a checkpoint, and nothing else of it; UserError under DeepSpeed, which cannot."""
        if self._trainer.is_deepspeed_enabled:
            raise UserError(
                f"{checkpoint}: nothing is left to train, and DeepSpeed cannot load it: go on in one process"
            )
        self._trainer._load_from_checkpoint(str(checkpoint))

    def load_if_finished(self, checkpoint: Path, until: UntilSettings | None = None) -> bool:
        """Load a checkpoint with nothing left to train, or return False; Transformers would train one step more."""
        trainer, state = self._trainer, TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
        if trainer.args.max_steps > 0:
            over = state.global_step >= trainer.args.max_steps
        else:
            over = (state.epoch or 0) >= trainer.args.num_train_epochs
        if not over and not (until is not None and until.reached(state.log_history)):
            return False
        best = trainer.args.load_best_model_at_end and state.best_global_step
        self.load_weights(checkpoint.with_name(f"checkpoint-{state.best_global_step}") if best else checkpoint)
        trainer.state = state
        self._saved_step = state.global_step
        self._restore_totals(checkpoint)
        self._began = time.monotonic()
        return True

    # --- saving ---

    @peak_memory.phase("saving")
    def save(self, write: Callable[[], None]) -> None:
        """Write a checkpoint, TRL's files by `write`; OutOfRoom where a full disk is to end the training."""
        args, state = self._trainer.args, self._trainer.state
        if self._saved_step == state.global_step:
            return
        full = save_whole(
            self.output_dir,
            state.global_step,
            lambda folder: self._write(folder, write),
            publishes=args.should_save,
            keep=args.save_total_limit,
            best=self._best_saved_step(),
        )
        if full is None:
            self._saved_step = state.global_step
        elif self._on_full_disk == "go_on":
            logger.warning("%s; the training goes on without it", full)
        else:
            raise OutOfRoom(f"{full}. Make room and give the same command again, or set on_full_disk=go_on")

    def _best_saved_step(self) -> int | None:
        """The step of the best checkpoint: by the metric of the arguments, else by held-out accuracy or reward."""
        state = self._trainer.state
        if state.best_global_step:
            return int(state.best_global_step)
        saved = {*steps_in(self.output_dir), state.global_step}
        for name in ("eval_accuracy", "eval_reward"):
            measured = {row["step"]: row[name] for row in state.log_history if name in row and row["step"] in saved}
            if measured:
                return max(measured, key=lambda step: (measured[step], -step))
        return None

    def _write(self, folder: Path, write: Callable[[], None]) -> None:
        trainer = self._trainer
        args, state = trainer.args, trainer.state
        model_alone = args.save_only_model
        # A run that stops before its end goes on from here.
        stops_early = trainer.control.should_training_stop and state.global_step < state.max_steps
        args.save_only_model = model_alone and not stops_early
        try:
            with trainer.staged_in(folder.parent):
                write()
            if not args.save_only_model:
                self._save_rollout_state(folder)
        finally:
            args.save_only_model = model_alone
        if args.should_save and state.best_global_step:  # Transformers has looked for it in the staged folder
            state.best_model_checkpoint = str(self.output_dir / f"checkpoint-{state.best_global_step}")
            state.save_to_json(str(folder / TRAINER_STATE_NAME))

    def save_now(self) -> None:
        """Write a checkpoint of the present step, where there is none yet."""
        self._trainer._save_checkpoint(self._trainer.model, trial=None)

    # --- `pending_<process>.pt` ---

    def _save_rollout_state(self, folder: Path) -> None:
        trainer = self._trainer
        sampling = trainer.dynamic_sampling
        content = {
            **trainer.unfinished_step(),
            "batches": self._batches(),
            "rollouts": trainer.newest_rollouts,
            "adaptive_weights": {name: weight.state() for name, weight in trainer.adaptive_weights.items()},
            "problem_order": None if sampling is None else sampling.order.state(),
            "reward_failures": self.reward_failures(),
            "reward_states": {name: each.state_dict() for name, each in self.stateful_rewards()},
            "seconds": self.trained_seconds,
        }
        torch.save(content, _pending(folder, trainer.accelerator.process_index))

    def restore(self) -> None:
        """Restore the state of the resumed checkpoint, once the trainer has set its own start values."""
        own = None if self._resumed is None else self._restore_totals(self._resumed)
        if own is None:
            return
        same_batches = own["batches"] == self._batches()
        if not same_batches and own["buffered_inputs"] is not None:
            logger.warning("the completions pending in %s are of another batch: drawn anew", self._resumed)
        self._trainer.take_up_unfinished_step(own, with_buffer=same_batches)
        self._trainer.newest_rollouts = own["rollouts"]

    def _restore_totals(self, checkpoint: Path) -> dict[str, Any] | None:
        """Restore what all processes have alike: counts, adaptive weights, the order of the problems.

        Returns all of this process's state; None where the checkpoint has none of it.
        """
        trainer = self._trainer
        own, of_the_first = (_pending(checkpoint, process) for process in (trainer.accelerator.process_index, 0))
        if not of_the_first.exists():  # save_only_model
            return None
        device = trainer.accelerator.device  # of several processes on a CPU each has a number, which torch cannot read
        content: dict[str, Any] = torch.load(
            own if own.exists() else of_the_first,
            map_location="cpu" if device.type == "cpu" else device,
            weights_only=True,
        )
        for name, weight in trainer.adaptive_weights.items():
            if name in content["adaptive_weights"]:  # one that was not adaptive begins anew
                weight.restore(content["adaptive_weights"][name])
        trainer.apply_adaptive_weights()
        if trainer.dynamic_sampling is not None and content["problem_order"] is not None:
            trainer.dynamic_sampling.order.restore(content["problem_order"])
        for name, function in self.stateful_rewards():
            if name in content.get("reward_states", ()):
                function.load_state_dict(content["reward_states"][name])
        self.seconds_before = content["seconds"]
        if not own.exists():  # fewer processes wrote it
            return None
        for function in trainer.reward_funcs:
            if hasattr(function, "failures"):
                function.failures = content["reward_failures"].get(function.name, 0)
        return content

    def _batches(self) -> list[int]:
        """The settings that decide which part of a buffer is trained on when."""
        args, iterations = self._trainer.args, self._trainer.num_iterations
        return [args.per_device_train_batch_size, args.steps_per_generation, iterations, args.world_size]

    def stateful_rewards(self) -> list[tuple[str, Any]]:
        """The reward objects that have a state to save, by name; a reward model has its folder."""
        named = zip(self._trainer.reward_func_names, self._trainer.reward_funcs, strict=True)
        return [each for each in named if hasattr(each[1], "load_state_dict") and not isinstance(each[1], nn.Module)]

    def reward_failures(self) -> dict[str, int]:
        """Rows on which each reward function failed, by its name; without those that never did."""
        return {each.name: each.failures for each in self._trainer.reward_funcs if getattr(each, "failures", 0)}


def _pending(folder: Path, process: int) -> Path:
    return folder / f"pending_{process}.pt"
