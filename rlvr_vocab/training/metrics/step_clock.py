"""The seconds and the peak memory of a training step by phase, and its tokens per second."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from accelerate import PartialState
from transformers import TrainerCallback, TrainerControl, TrainerState

from rlvr_vocab.record.metrics import MEMORY_OF_PHASE, PHASES

GIB = 2**30
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class _Phases(Protocol):
    """Is in one phase at a time."""

    _phase: str | None = None

    def enter(self, phase: str | None) -> object: ...

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Around a block, or as a decorator of a function: its phase, and then the one before."""
        before = self._phase
        self.enter(name)
        try:
            yield
        finally:
            self.enter(before)


class PeakMemory(_Phases):
    """Measures the peak of each phase: torch's allocations on a CUDA device, else resident pages (Linux alone).

    Resident pages are those of this process, mapped files included, without workers. `highest` has GiB by phase.
    """

    def __init__(self) -> None:
        self.highest: dict[str, float] = {}

    def current(self) -> str | None:
        """The phase that the process is in."""
        return self._phase

    def enter(self, phase: str | None) -> float | None:
        """Begin a phase; return the peak of the one that ends, in GiB, or None where it cannot be measured."""
        peak = _peak_since_the_last_call()
        if peak is not None:
            ended = self._phase or "other"
            self.highest[ended] = max(peak, self.highest.get(ended, 0.0))
        self._phase = phase
        return peak


def _peak_since_the_last_call() -> float | None:
    if PartialState().device.type == "cuda":
        peak = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        return peak / GIB
    try:
        found = re.search(rb"^VmHWM:\s+(\d+) kB", _STATUS.read_bytes(), re.MULTILINE)
        _CLEAR.write_bytes(b"5")  # proc(5): the peak begins anew
    except OSError:  # another system, or one that shows /proc read-only
        return None
    return None if found is None else int(found[1]) * 1024 / GIB


# One for the process: every part of a run may begin a phase.
peak_memory = PeakMemory()


class StepClock(_Phases, TrainerCallback):
    """Logs `step_time`, the phases that add up to it, their peaks of memory, and tokens per second.

    A step goes from its first batch to its update, without logging, evaluation and saving. A phase ends when the
    device has finished its work. Seconds are those of this process, tokens of all, a peak is the highest of all.
    The trainer adds to `sampled_tokens` and `trained_tokens` what this process has in a step.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._seconds: dict[str, float] = defaultdict(float)
        self._peaks: dict[str, float] = defaultdict(float)
        self._since = 0.0
        self.sampled_tokens = self.trained_tokens = self._rows = 0

    def enter(self, phase: str | None) -> None:
        """Begin a phase; None after the end of a step."""
        if self._trainer.accelerator.device.type != "cpu":
            torch.accelerator.synchronize()
        now = time.perf_counter()
        peak = peak_memory.enter(phase and phase.removeprefix("time/"))
        if self._phase is not None:
            self._seconds[self._phase] += now - self._since
            self._peaks[self._phase] = max(self._peaks[self._phase], peak or 0.0)
        self._phase, self._since = phase, now

    def wait_for_others(self) -> None:
        """Wait here for the slowest process; otherwise its time would count to the next phase."""
        if self._trainer.accelerator.num_processes > 1:
            with self.phase("time/waiting"):
                self._trainer.accelerator.wait_for_everyone()

    def on_step_begin(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.enter("time/other")
        self._seconds.clear()
        self._peaks.clear()
        self.sampled_tokens = self.trained_tokens = 0
        self._rows = len(self._trainer.train_metrics.get("step_time", ()))

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        accelerator, metrics, seconds = self._trainer.accelerator, self._trainer.train_metrics, self._seconds
        self.enter("time/waiting" if accelerator.num_processes > 1 else "time/other")
        tokens = torch.tensor([self.sampled_tokens, self.trained_tokens], device=accelerator.device)
        sampled, trained = accelerator.reduce(tokens, reduction="sum").tolist()
        self.enter(None)
        metrics["step_time"][self._rows :] = [sum(seconds.values())]  # TRL's leaves the update out
        own = torch.tensor([[self._peaks[name] for name in PHASES]], device=accelerator.device)
        for name, peak in zip(PHASES, accelerator.gather(own).amax(0).tolist(), strict=True):
            if name != "time/waiting" or accelerator.num_processes > 1:
                metrics[name].append(seconds[name])
            if peak:  # the highest of all processes and of all steps of a row
                memory = MEMORY_OF_PHASE[name]
                metrics[memory][:] = [max([*metrics[memory], peak])]
        if sampled:
            metrics["time/sampled_tokens_per_second"].append(sampled / seconds["time/generation"])
        updating = sum(seconds[name] for name in ("time/forward", "time/backward", "time/optimizer"))
        if trained:
            metrics["time/trained_tokens_per_second"].append(trained / updating)
