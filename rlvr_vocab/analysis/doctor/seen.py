"""What the doctor remembers of a run: the first and the last rows of the stage it is in, however long it runs."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr_vocab.analysis.doctor.thresholds import LIMITS
from rlvr_vocab.analysis.record import OF_A_STEP, Row, RunFacts, is_number

_FIRST_ROWS, _LAST_ROWS, _EVALUATIONS = 50, 100, 200


@dataclass(frozen=True)
class Level:
    """A mean, and its standard error."""

    mean: float
    error: float


class Seen:
    """The rows of the current stage and the measurements of the run, in bounded memory.

    A new stage forgets the rows of the one before: its rewards and lengths are others. Windows are given in steps, so
    that they hold as many steps whether every step is logged or every tenth.

    Attributes:
        rows: how many of the stage were logged.
        since_warmup: how many of them after the learning rate had stopped to rise.
        kl: step and value of the last rows that had one.
        best, best_step: the highest mean reward of a window, and where that ended.
        has_risen: whether some window had a reward clearly above the first one's.
        evaluations: step, accuracy, number of problems and reward of each measurement on held-out problems.
    """

    def __init__(self, facts: RunFacts, folder: Path) -> None:
        self.facts, self.folder = facts, folder
        self.evaluations: deque[tuple[int, float, float | None, float | None]] = deque(maxlen=_EVALUATIONS)
        self._stage: object = None
        self._begin()

    def _begin(self) -> None:
        self.rows = self.since_warmup = 0
        self.best: Level | None = None
        self.best_step = 0
        self.has_risen = False
        self.kl: deque[tuple[int, float]] = deque(maxlen=5)
        self._first: list[Row] = []
        self._last: deque[Row] = deque(maxlen=_LAST_ROWS)
        self._windows: dict[int, list[Row]] = {}  # of the present row, by length

    def add(self, row: Row) -> None:
        if OF_A_STEP not in row:
            self._measured(row)
            return
        if self.rows and row.get("stage") != self._stage:
            self._begin()
        self._stage = row.get("stage")
        before = self._last[-1] if self._last else {}
        still_rising = (rate_of(row) or 0.0) > (rate_of(before) or 0.0)
        self.since_warmup += bool(self.rows) and not still_rising
        self.rows += 1
        self._last.append(row)
        self._windows.clear()
        if len(self._first) < _FIRST_ROWS:
            self._first.append(row)
        kl = number(row, "kl")
        if kl is not None:
            self.kl.append((int(row["step"]), kl))
        self._weigh(level(self.recent(), "reward"))

    def _weigh(self, now: Level | None) -> None:
        """Compare the last window with the best and the first one."""
        first = level(self.earliest(), "reward")
        if now is None or first is None:
            return
        if self.best is None or now.mean > self.best.mean:
            self.best, self.best_step = now, self.step
        self.has_risen |= now.mean - first.mean > LIMITS.risen * math.hypot(now.error, first.error)

    def _measured(self, row: Row) -> None:
        accuracy, problems = number(row, "eval/accuracy"), number(row, "eval/problems")
        if accuracy is not None:
            reward = level(self.recent() or list(self._last), "reward")
            mean = None if reward is None else reward.mean
            self.evaluations.append((int(row["step"]), accuracy, problems, mean))

    @property
    def step(self) -> int:
        return int(self._last[-1]["step"])

    @property
    def steps_per_row(self) -> float:
        rows = self._last
        return (rows[-1]["step"] - rows[0]["step"]) / (len(rows) - 1) if len(rows) > 1 else 1.0

    def rows_for(self, steps: float) -> int:
        """How many rows hold so many steps."""
        return max(int(LIMITS.fewest_rows), math.ceil(steps / max(1.0, self.steps_per_row)))

    def recent(self, steps: float = LIMITS.window) -> list[Row]:
        """The rows of the last steps; none as long as there are too few."""
        needed = self.rows_for(steps)
        if needed not in self._windows:
            self._windows[needed] = list(self._last)[-needed:] if len(self._last) >= needed else []
        return self._windows[needed]

    def earliest(self, steps: float = LIMITS.window) -> list[Row]:
        """The rows of the first steps of the stage."""
        return self._first[: self.rows_for(steps)]


def number(row: Row, metric: str) -> float | None:
    """The metric of a row; None where it has none, or no finite one."""
    value: Any = row.get(metric)
    return float(value) if is_number(value) else None


def rate_of(row: Row) -> float | None:
    return number(row, "learning_rate")


def values(rows: Iterable[Row], metric: str) -> list[float]:
    return [value for row in rows if (value := number(row, metric)) is not None]


def typical(rows: Sequence[Row], metric: str) -> float | None:
    """Median of a metric; None where fewer than half of the rows have it."""
    found = values(rows, metric)
    return statistics.median(found) if found and 2 * len(found) >= len(rows) else None


def level(rows: Sequence[Row], metric: str) -> Level | None:
    """Mean of a metric over rows; None for fewer than two values."""
    return mean_of(values(rows, metric))


def mean_of(found: Sequence[float]) -> Level | None:
    """Mean and its standard error; None for fewer than two values."""
    if len(found) < 2:
        return None
    mean = math.fsum(found) / len(found)
    squares = math.fsum(
        (value - mean) ** 2 for value in found
    )  # statistics.stdev reckons in fractions: 50 times slower
    return Level(mean, math.sqrt(squares / (len(found) - 1) / len(found)))
