"""What a run was expected to take, as it is kept beside what it took; no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.files import json_text, read_json_if_there
from rlvr_vocab.record.metrics import MEMORY_OF_PHASE, PHASES

FORECAST = "forecast.json"
GIB = 2**30
STEP_TIME = "step_time"


@dataclass(frozen=True)
class Forecast:
    """Bytes by phase and part, and seconds by phase, of one process.

    Attributes:
        device: name of the card in the plan's table, or cpu.
        device_memory: bytes of it.
        processes: that train together.
        memory: at the peak of each phase, by part.
        step_seconds: of an optimisation step by phase, at the mean length of completions.
        step_range: seconds of a step, from short completions and a fast machine to long ones and a slow one.
        steps, epochs: of optimisation, and passes over the problems; None where their number is not known.
        sampled, trained: tokens of a step, of all processes.
        calibrated: whether steps of the real thing were measured for it.
    """

    device: str
    device_memory: float
    processes: int
    trained_weights: int
    frozen_weights: int
    memory: Mapping[str, Mapping[str, float]]
    step_seconds: Mapping[str, float]
    step_range: tuple[float, float]
    steps: int | None
    epochs: float | None
    problems: int | None
    completions: float
    completion: tuple[float, float, float]
    prompt: int
    sampled: float
    trained: float
    calibrated: bool = False

    @property
    def peak_phase(self) -> str:
        return max(self.memory, key=self.peak_of)

    @property
    def peak(self) -> float:
        """Bytes."""
        return self.peak_of(self.peak_phase)

    def peak_of(self, phase: str) -> float:
        return sum(self.memory[phase].values())

    @property
    def seconds(self) -> float:
        """Of a step."""
        return sum(self.step_seconds.values())

    @property
    def total_range(self) -> tuple[float, float] | None:
        """Seconds of all steps; None where nobody knows how many there are."""
        if self.steps is None:
            return None
        low, high = self.step_range
        return self.steps * low, self.steps * high

    def to_json(self) -> str:
        derived = {"peak_phase": self.peak_phase, "peak": self.peak, "total_range": self.total_range}
        return json_text({**asdict(self), **derived})


@dataclass(frozen=True)
class Measured:
    """What a run took: bytes and seconds of a step by phase, mean tokens of a completion; the last rows count."""

    memory: Mapping[str, float]
    seconds: Mapping[str, float]
    completion: float


def read_forecast(folder: Path) -> Forecast | None:
    """That of a run; None for one that has none, or none that can be read: nothing but its grades goes by it."""
    names = Forecast.__dataclass_fields__
    try:
        content = read_json_if_there(folder / FORECAST)
        return None if content is None else Forecast(**{name: content[name] for name in names if name in content})
    except (UserError, TypeError):  # damaged, or of a version with other fields
        return None


def measured_in(rows: Sequence[Mapping[str, Any]]) -> Measured:
    """What the logged steps of a run took: the last of their seconds, the highest of their peaks.

    The first step makes the optimizer's state, and is slower than those that follow.
    """
    steps = [row for row in rows if STEP_TIME in row]
    last = steps[len(steps) // 2 :]
    names = {name: name.removeprefix("time/") for name in PHASES}
    seconds = {name: fmean(row.get(key, 0.0) for row in last) for key, name in names.items()}
    memory = {
        name: max(row[MEMORY_OF_PHASE[key]] for row in steps if MEMORY_OF_PHASE[key] in row) * GIB
        for key, name in names.items()
        if any(MEMORY_OF_PHASE[key] in row for row in steps)
    }
    drawn = [row["completions/mean_length"] for row in steps if "completions/mean_length" in row]  # not by every step
    return Measured(memory, {name: value for name, value in seconds.items() if value}, fmean(drawn) if drawn else 0.0)


def grades(forecast: Forecast, measured: Measured) -> list[tuple[str, float, float]]:
    """Name, forecast and measured: memory by phase in GiB, seconds of a step by phase and in all."""
    of_memory = [
        (f"memory, {phase}", forecast.peak_of(phase) / GIB, measured.memory[phase] / GIB)
        for phase in forecast.memory
        if measured.memory.get(phase)
    ]
    of_time = [
        (f"seconds, {phase}", seconds, measured.seconds[phase])
        for phase, seconds in forecast.step_seconds.items()
        if measured.seconds.get(phase)
    ]
    return [*of_memory, *of_time, ("seconds, step", forecast.seconds, sum(measured.seconds.values()))]
