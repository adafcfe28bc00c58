"""A short supervised warm-up on worked solutions; an interrupted one is resumed to the bit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
)
from trl import SFTConfig, SFTTrainer

from rlvr_vocab.device import device_type
from rlvr_vocab.training.checkpoint_folders import newest_checkpoint, save_whole
from rlvr_vocab.training.settings import WarmupSettings
from rlvr_vocab.training.trl_seams import StagedCheckpoints

logger = logging.getLogger(__name__)

AccuracyCheck = Callable[[], float | None]
ProgressReport = Callable[[int, int, Mapping[str, float]], None]


@dataclass(frozen=True)
class WarmupOutcome:
    steps: int
    accuracy: float | None


def warm_up(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    checkpoints: Path,
    problems: Sequence[Mapping[str, Any]],
    settings: WarmupSettings,
    seed: int,
    measure_accuracy: AccuracyCheck,
    on_progress: ProgressReport = lambda step, total, figures: None,
    use_cpu: bool = False,
    bf16: bool = False,
) -> WarmupOutcome:
    """Fine-tune a model on worked solutions, from the newest checkpoint in `checkpoints` if there is one.

    `problems` have `prompt` and `completion`, each a list of messages, and perhaps `tools`, their schemas as JSON text;
    messages of tools are not trained. `measure_accuracy` gives the share of right answers to other problems, None
    without a readable gold answer. `on_progress` gets step, steps at most, and figures: `loss` or `accuracy`.
    """
    config = SFTConfig(
        output_dir=str(checkpoints),
        max_steps=settings.max_steps,
        per_device_train_batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=20,
        seed=seed,
        completion_only_loss=True,
        assistant_only_loss=any(message["role"] == "tool" for row in problems for message in row["completion"]),
        gradient_checkpointing=False,
        bf16=bf16,
        use_cpu=device_type(use_cpu) == "cpu",  # or Transformers asks for a GPU that computes in bfloat16
        logging_steps=10,
        save_steps=settings.check_every,
        report_to="none",
        disable_tqdm=True,
    )
    config._n_gpu = min(config.n_gpu, 1)  # of several GPUs that one process sees; TRL refuses to use them all
    dataset = Dataset.from_list(list(problems), on_mixed_types="use_json")  # of calls, which have different arguments
    trainer = _WarmupTrainer(model=model, args=config, train_dataset=dataset, processing_class=tokenizer)
    watch = _WarmupWatch(settings, trainer.accelerator.autocast()(measure_accuracy), on_progress)
    trainer.add_callback(watch)
    trainer.remove_callback(PrinterCallback)
    newest = newest_checkpoint(checkpoints)
    trainer.train(resume_from_checkpoint=None if newest is None else str(newest))
    return WarmupOutcome(trainer.state.global_step, watch.accuracy)


class _WarmupTrainer(StagedCheckpoints, SFTTrainer):
    """Its newest checkpoint is whole; without room on the disk it goes on without one."""

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """`SFTTrainer._save_checkpoint` without its model card."""

        def write(folder: Path) -> None:
            with self.staged_in(folder.parent):
                Trainer._save_checkpoint(self, model, trial)

        full = save_whole(Path(self.args.output_dir), self.state.global_step, write, publishes=True, keep=1)
        if full is not None:
            logger.warning("%s; the warm-up goes on without it", full)


class _WarmupWatch(TrainerCallback):
    """Measures accuracy every `check_every` steps, and stops the warm-up once it suffices."""

    def __init__(self, settings: WarmupSettings, measure: AccuracyCheck, on_progress: ProgressReport) -> None:
        self._settings, self._measure, self._on_progress = settings, measure, on_progress
        self.accuracy: float | None = None

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        measured = [row["accuracy"] for row in state.log_history if "accuracy" in row]  # before a checkpoint
        self.accuracy = measured[-1] if measured else None

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, logs: Any = None, **_: Any) -> None:
        if logs and "loss" in logs:
            self._on_progress(state.global_step, self._settings.max_steps, {"loss": float(logs["loss"])})

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        target, step = self._settings.until_accuracy, state.global_step
        if target is not None and step % self._settings.check_every == 0:
            self.accuracy = self._measure()
            state.log_history.append({"step": step, "accuracy": self.accuracy})
            if self.accuracy is not None:
                self._on_progress(step, self._settings.max_steps, {"accuracy": self.accuracy})
                control.should_training_stop |= self.accuracy >= target
        if control.should_training_stop or step == state.max_steps:
            control.should_save = False  # the model itself is saved now, and no step is to follow from here
