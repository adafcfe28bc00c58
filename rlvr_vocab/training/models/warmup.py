"""A short supervised warm-up on worked solutions, stopped while the model is still mediocre."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from datasets import Dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from trl import SFTConfig, SFTTrainer

from rlvr_vocab.training.settings import WarmupSettings
from rlvr_vocab.vocab.read_as_data import NO_CODE, READ_AS_DATA, reading

Messages = list[dict[str, str]]
AccuracyCheck = Callable[[PreTrainedModel, PreTrainedTokenizerBase], float | None]
ProgressReport = Callable[[int, int, Mapping[str, float]], None]


@dataclass(frozen=True)
class WorkedProblem:
    """A prompt and the assistant's turn that solves it, thinking included."""

    prompt: Messages
    turn: str


@dataclass(frozen=True)
class WarmupOutcome:
    steps: int
    accuracy: float | None


def warm_up(
    base: str | Path,
    out: Path,
    problems: Sequence[WorkedProblem],
    settings: WarmupSettings,
    seed: int,
    measure_accuracy: AccuracyCheck,
    on_progress: ProgressReport = lambda step, total, figures: None,
) -> WarmupOutcome:
    """Fine-tune `base` on worked solutions and save it to `out` as an ordinary model folder.

    Args:
        measure_accuracy: samples answers to problems outside `problems` and returns the share that is right, None
            where no gold answer can be read.
        on_progress: called with (step, steps at most, figures): `loss` and `examples/s` now and then, `accuracy` where
            it was measured. The seconds of measuring do not count.
    """
    with reading(str(base)):
        model = AutoModelForCausalLM.from_pretrained(str(base), dtype="float32", **READ_AS_DATA)
        tokenizer = AutoTokenizer.from_pretrained(str(base), padding_side="left", **NO_CODE)
    rows = [
        {"prompt": problem.prompt, "completion": [{"role": "assistant", "content": problem.turn}]}
        for problem in problems
    ]
    watch = _WarmupWatch(settings, lambda: measure_accuracy(model, tokenizer), on_progress)
    trainer = SFTTrainer(
        model=model,
        args=_sft_config(settings, seed, out),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[watch],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    model.save_pretrained(out)
    tokenizer.save_pretrained(str(out))
    return WarmupOutcome(trainer.state.global_step, watch.accuracy)


def _sft_config(settings: WarmupSettings, seed: int, out: Path) -> SFTConfig:
    return SFTConfig(
        output_dir=str(out),
        max_steps=settings.max_steps,
        per_device_train_batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=20,
        seed=seed,
        completion_only_loss=True,
        gradient_checkpointing=False,
        bf16=False,
        logging_steps=10,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


class _WarmupWatch(TrainerCallback):
    """Measures accuracy now and then, and stops the warm-up once it suffices."""

    def __init__(
        self, settings: WarmupSettings, measure: Callable[[], float | None], on_progress: ProgressReport
    ) -> None:
        self._settings, self._measure, self._on_progress = settings, measure, on_progress
        self._began = self._seconds = 0.0
        self._examples = 0
        self.accuracy: float | None = None

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        self._began = time.perf_counter()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: object,
    ) -> None:
        if logs and "loss" in logs:
            self._report(state, {"loss": float(logs["loss"]), "examples/s": self._examples / self._seconds})

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        self._seconds += time.perf_counter() - self._began
        self._examples += self._settings.batch_size
        target = self._settings.until_accuracy
        if target is None or state.global_step % self._settings.check_every:
            return
        self.accuracy = self._measure()
        self._report(state, {} if self.accuracy is None else {"accuracy": self.accuracy})
        if self.accuracy is not None and self.accuracy >= target:
            control.should_training_stop = True

    def _report(self, state: TrainerState, figures: Mapping[str, float]) -> None:
        self._on_progress(state.global_step, self._settings.max_steps, figures)
