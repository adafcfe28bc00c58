"""What the doctor remembers of a run: the first and the last rows of the stage it is in, however long it runs."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rlvr_vocab.analysis.doctor.thresholds import LIMITS
from rlvr_vocab.analysis.doctor.windows import MOST_ROWS, Windows
from rlvr_vocab.record.metrics import Row, RunFacts, is_number, is_step_row

_EVALUATIONS = 200
# What a row has only where completions were sampled for it: not so where several updates are made from one batch.
_OF_SAMPLING = ("reward", "completions/mean_length", "completions/clipped_ratio")
AT_START = "reward at the first weights"


@dataclass(frozen=True)
class Level:
    """A mean, and its standard error."""

    mean: float
    error: float


class Measured(NamedTuple):
    """A measurement on held-out problems, with the reward then and at the beginning of its stage."""

    step: int
    accuracy: float
    problems: float | None
    reward: Level | None
    first_reward: Level | None
    stage: object = None


class Seen:
    """The rows of the current stage and the measurements of the run, in bounded memory.

    A new stage forgets the rows of the one before: its rewards and lengths are others, and so may its settings be.
    Windows are given in steps, so that they hold as many steps whether every step is logged or every tenth.

    Attributes:
        facts: what the run was to do; in a run of stages, what the current one was.
        since_warmup: how many rows there were after the learning rate had stopped to rise.
        kl: step and value of the last rows that had one.
        first_kl: the same of the first.
        best, best_step: the highest mean reward of a window, and where that ended.
        has_risen: whether some window had a reward clearly above the first one's.
        reward: the metric that a reward is judged by; weights that adapt move the logged one by themselves.
        evaluations: every measurement on held-out problems, those of earlier stages too.
    """

    def __init__(self, facts: RunFacts, folder: Path) -> None:
        self._run, self.folder = facts, folder
        self.evaluations: deque[Measured] = deque(maxlen=_EVALUATIONS)
        self._begin(None)

    def _begin(self, stage: object) -> None:
        self._stage = stage
        self.facts = self._run.of_stage(stage)
        self.since_warmup = 0
        self.best: Level | None = None
        self.best_step = 0
        self.has_risen = False
        self.reward = "reward"
        self.kl: deque[tuple[int, float]] = deque(maxlen=5)
        self.first_kl: tuple[int, float] | None = None
        self._all, self._sampled = Windows(), Windows()
        self._jumps = 0.0

    def add(self, row: Row) -> None:
        if not is_step_row(row):
            self._measured(row)
            return
        if not self.rows or row.get("stage") != self._stage:
            self._begin(row.get("stage"))
        still_rising = (rate_of(row) or 0.0) > (rate_of(self._all.last or {}) or 0.0)
        self.since_warmup += bool(self.rows) and not still_rising
        self._all.add(row)
        kl = number(row, "kl")
        if kl is not None:
            self.kl.append((int(row["step"]), kl))
            self.first_kl = self.first_kl or self.kl[-1]
        if any(number(row, name) is not None for name in _OF_SAMPLING):
            self._add_sampled(_with_first_weights(self.facts, row))

    def _add_sampled(self, row: Row) -> None:
        self.reward = AT_START if AT_START in row else "reward"
        before, now = number(self._sampled.last or {}, self.reward), number(row, self.reward)
        if before is not None and now is not None:
            self._jumps += (now - before) ** 2
        self._sampled.add(row)
        if self._sampled.count < self.rows:  # a row is then one batch, however many steps lie between two
            self._sampled.fewest = int(LIMITS.fewest_sampled)
        self._weigh(level(self.sampled(), self.reward))

    def _weigh(self, now: Level | None) -> None:
        """Compare the last window with the best and the first one."""
        first = level(self.first_sampled(), self.reward)
        if now is None or first is None:
            return
        if self.best is None or now.mean > self.best.mean:
            self.best, self.best_step = now, self.step
        self.has_risen |= now.mean - first.mean > LIMITS.risen * math.hypot(now.error, first.error)

    def _measured(self, row: Row) -> None:
        accuracy, problems = number(row, "eval/accuracy"), number(row, "eval/problems")
        if accuracy is not None:
            reward = level(self.sampled() or self.first_sampled(), self.reward)
            self.evaluations.append(
                Measured(int(row["step"]), accuracy, problems, reward, self.first_reward, self._stage)
            )

    @property
    def rows(self) -> int:
        """How many of the stage were logged."""
        return self._all.count

    @property
    def rows_sampled(self) -> int:
        """How many of them have figures of completions."""
        return self._sampled.count

    @property
    def step(self) -> int:
        return int(self._all.last["step"]) if self._all.last else 0

    @property
    def steps_per_row(self) -> float:
        return self._all.steps_per_row

    @property
    def first_reward(self) -> Level | None:
        """The reward in the first steps of the stage."""
        rows = self.first_sampled()
        return level(rows, self.reward) if len(rows) >= LIMITS.fewest_rows else None

    @property
    def noise(self) -> float:
        """How far a row's reward lies from its mean, told from neighbours, so that a slow change is none."""
        return math.sqrt(self._jumps / 2 / max(1, self.rows_sampled - 1))

    def rows_for(self, steps: float) -> int:
        """How many rows hold so many steps."""
        return self._all.rows_for(steps)

    def recent(self, steps: float = LIMITS.window) -> list[Row]:
        """The rows of the last steps; none as long as there are too few."""
        return self._all.recent(steps)

    def earliest(self, steps: float = LIMITS.window) -> list[Row]:
        """The rows of the first steps of the stage."""
        return self._all.earliest(steps)

    def sampled(self, steps: float = LIMITS.window) -> list[Row]:
        """The last rows that have figures of completions and rewards; none as long as there are too few."""
        return self._sampled.recent(steps_needed(self.facts, steps))

    def has_tokens(self, rows: Sequence[Row], length: float | None) -> bool:
        """Whether rows of completions of such a length hold tokens enough for a share or a mean of them."""
        per_step = self.facts.completions_per_step
        if length is None or per_step is None:
            return bool(length)
        return length * per_step * len(rows) * max(1.0, self._sampled.steps_per_row) >= LIMITS.fewest_tokens

    def first_sampled(self, steps: float = LIMITS.window) -> list[Row]:
        """The first of them."""
        return self._sampled.earliest(steps)

    def beginning(self, steps: float) -> list[Row]:
        """The first of them, and no more rows than hold so many steps."""
        return self._sampled.beginning(steps)


def steps_needed(facts: RunFacts, steps: float = LIMITS.window) -> float:
    """So many, and more of those that draw few completions; no more than are kept."""
    if not facts.completions_per_step:
        return steps
    return max(steps, min(MOST_ROWS, math.ceil(LIMITS.fewest_completions / facts.completions_per_step)))


def _with_first_weights(facts: RunFacts, row: Row) -> Row:
    """The row, and where weights adapt, what its reward would be had they not."""
    if not any(reward.adaptive for reward in facts.rewards):
        return row
    scores = [(reward.weight, number(row, f"rewards/{reward.name}/mean")) for reward in facts.rewards]
    parts = [weight * mean for weight, mean in scores if mean is not None]
    return {**row, AT_START: math.fsum(parts)} if len(parts) == len(scores) else row


def number(row: Row, metric: str) -> float | None:
    """The metric of a row; None where it has none, or no finite one."""
    value: Any = row.get(metric)
    return float(value) if is_number(value) else None


def rate_of(row: Row) -> float | None:
    return number(row, "learning_rate")


def values(rows: Iterable[Row], metric: str) -> list[float]:
    return [float(row[metric]) for row in rows if is_number(row.get(metric))]


def typical(rows: Sequence[Row], metric: str) -> float | None:
    """Median of a metric; None where fewer than half of the rows have it."""
    found = values(rows, metric)
    return statistics.median(found) if found and 2 * len(found) >= len(rows) else None


def average(rows: Sequence[Row], metric: str) -> float | None:
    """Mean of a metric, where a median of a few completions would be all or nothing; None as in `typical`."""
    found = values(rows, metric)
    return math.fsum(found) / len(found) if found and 2 * len(found) >= len(rows) else None


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
