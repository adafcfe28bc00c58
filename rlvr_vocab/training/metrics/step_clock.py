"""The seconds and the memory of an optimisation step by what they are spent on, and the tokens that they bring."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rlvr_vocab.record.metrics import MEMORY_OF_PHASE, PHASES
from rlvr_vocab.training.metrics.peak_memory import peak_memory


class StepClock(TrainerCallback):
    """Logs `step_time`, the phases that add up to it, their peaks of memory, and tokens per second.

    A step goes from its first batch to its update; what is logged, measured or saved after that is no part of it. It
    is in one phase at each moment, and a phase ends when the device has done what it was given. Seconds are those of
    this process, tokens those of all, and a peak is that of the process that has the highest.

    Args:
        trainer: a `RegionGRPOTrainer`.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._seconds: dict[str, float] = defaultdict(float)
        self._peaks: dict[str, float] = defaultdict(float)
        self._phase: str | None = None
        self._since = 0.0
        self._sampled = self._trained = 0
        self._rows = 0

    def enter(self, phase: str | None) -> None:
        """Be in a phase from now on; in none after the end of a step."""
        if self._trainer.accelerator.device.type != "cpu":
            torch.accelerator.synchronize()
        now = time.perf_counter()
        peak = peak_memory.enter(phase and phase.removeprefix("time/"))
        if self._phase is not None:
            self._seconds[self._phase] += now - self._since
            self._peaks[self._phase] = max(self._peaks[self._phase], peak or 0.0)
        self._phase, self._since = phase, now

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Be in a phase as long as the block runs, and then in the one before."""
        before = self._phase
        self.enter(name)
        try:
            yield
        finally:
            self.enter(before)

    def wait_for_others(self) -> None:
        """Wait for the slowest process here; it would otherwise count to what they all do next."""
        if self._trainer.accelerator.num_processes > 1:
            with self.phase("time/waiting"):
                self._trainer.accelerator.wait_for_everyone()

    def count_sampled(self, completion_ids: list[list[int]]) -> None:
        self._sampled += sum(map(len, completion_ids))

    def count_trained(self, completion_mask: torch.Tensor) -> None:
        self._trained += int(completion_mask.sum())

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.enter("time/other")
        self._seconds.clear()
        self._peaks.clear()
        self._sampled = self._trained = 0
        self._rows = len(self._trainer._metrics["train"].get("step_time", ()))

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        accelerator, metrics, seconds = self._trainer.accelerator, self._trainer._metrics["train"], self._seconds
        self.enter("time/waiting" if accelerator.num_processes > 1 else "time/other")
        tokens = torch.tensor([self._sampled, self._trained], device=accelerator.device)
        sampled, trained = accelerator.reduce(tokens, reduction="sum").tolist()
        self.enter(None)
        metrics["step_time"][self._rows :] = [sum(seconds.values())]  # TRL's leaves the update out
        for name in PHASES:
            if name != "time/waiting" or accelerator.num_processes > 1:
                metrics[name].append(seconds[name])
        self._log_peaks()
        if sampled:
            metrics["time/sampled_tokens_per_second"].append(sampled / seconds["time/generation"])
        updating = sum(seconds[name] for name in ("time/forward", "time/backward", "time/optimizer"))
        if trained:
            metrics["time/trained_tokens_per_second"].append(trained / updating)

    def _log_peaks(self) -> None:
        """The highest of all processes and of all steps of a row."""
        accelerator, metrics = self._trainer.accelerator, self._trainer._metrics["train"]
        own = torch.tensor([[self._peaks[name] for name in PHASES]], device=accelerator.device)
        for name, peak in zip(MEMORY_OF_PHASE.values(), accelerator.gather(own).amax(0).tolist(), strict=True):
            if peak:
                metrics[name][:] = [max([*metrics[name], peak])]
