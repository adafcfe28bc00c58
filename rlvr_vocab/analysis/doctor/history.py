"""The rows of a run as the doctor's rules read them: the first and the last ones of the current stage."""

from __future__ import annotations

import math
import re
import statistics
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rlvr_vocab.record.metrics import RewardFact, Row, RunFacts, is_number, is_step_row
from rlvr_vocab.rewards.reward import Traits, traits_by_name

WINDOW = 10.0  # steps: the figures of one follow the luck of a few problems
FEWEST_ROWS = 3  # of a window, however many steps a row holds
FEWEST_SAMPLED = 5  # rows, where not every row has figures of completions: such a row holds one batch
FEWEST_COMPLETIONS = 100  # of a window, which is made longer where it has fewer
FEWEST_TOKENS = 100  # of a window, for a mean over tokens
BEGINNING = 3.0  # steps: at a rate that is far too high, ten do not show where a run began
RISEN = 3.0  # standard errors that a window lies above the first (simulated: docs/reading_runs.md)
# Parts of the full reward: below the first no group of eight has much chance of two right answers.
NEARLY_NONE, NEARLY_ALL = 0.1, 0.9
RECURRING = 0.3  # share of rows: once is an accident, three times in ten is a habit

_FIRST_ROWS, _LAST_ROWS, _EVALUATIONS = 50, 100, 200
# What a row has only where completions were sampled for it: not so where several updates are made from one batch.
_OF_SAMPLING = ("reward", "completions/mean_length", "completions/clipped_ratio")


def declared(reward: RewardFact) -> Traits:
    """The traits of a reward function by its logged name; a second one of a name is logged as name_2."""
    return traits_by_name(re.sub(r"_\d+$", "", reward.name))


def full_mark(reward: RewardFact) -> float:
    """The score of success."""
    return declared(reward).full_mark if reward.full_mark is None else reward.full_mark


@dataclass(frozen=True)
class Estimate:
    """A mean, and its standard error."""

    mean: float
    error: float

    def is_above(self, other: Estimate, errors: float) -> bool:
        """Whether it is higher by more than so many standard errors of the difference."""
        return self.mean - other.mean > errors * math.hypot(self.error, other.error)


@dataclass(frozen=True)
class RewardScale:
    """The scale of the rewards of a run: the largest weight, and the full reward (0 with penalties alone)."""

    largest: float
    full: float

    @classmethod
    def of(cls, rewards: Sequence[RewardFact]) -> RewardScale:
        largest = max((abs(each.weight) for each in rewards), default=1.0) or 1.0
        return cls(largest, sum(each.weight * full_mark(each) for each in rewards if each.weight > 0))

    def is_near_zero(self, reward: float) -> bool:
        """Never where 0 is the full mark."""
        return self.full > 0 and abs(reward) <= NEARLY_NONE * self.full

    def is_near_full(self, reward: float) -> bool:
        """Not above it either: a score of 50 is no full mark, it is on another scale."""
        return abs(reward - self.full) <= (1 - NEARLY_ALL) * (abs(self.full) or self.largest)


class Evaluation(NamedTuple):
    """Accuracy, or reward, on held-out problems, with the training reward then and at the beginning of its stage.

    `deviation` is that of the held-out reward over the problems; None for an accuracy.
    """

    step: int
    value: float
    problems: float
    reward: Estimate | None
    first_reward: Estimate | None
    stage: object = None
    deviation: float | None = None


class RowSeries:
    """Rows in their order, in bounded memory; windows are given in steps, however many steps a row holds.

    Attributes:
        fewest: rows that a window has at least; least_steps: steps that `recent` covers at least.
    """

    def __init__(self, least_steps: float = 0.0) -> None:
        self.count = 0
        self.fewest = FEWEST_ROWS
        self.least_steps = least_steps
        self._first: list[Row] = []
        self._last: deque[Row] = deque(maxlen=_LAST_ROWS)

    def add(self, row: Row) -> None:
        self.count += 1
        self._last.append(row)
        if len(self._first) < _FIRST_ROWS:
            self._first.append(row)

    @property
    def last(self) -> Row:
        return self._last[-1] if self._last else {}

    @property
    def steps_per_row(self) -> float:
        rows = self._last
        return (rows[-1]["step"] - rows[0]["step"]) / (len(rows) - 1) if len(rows) > 1 else 1.0

    def rows_for(self, steps: float) -> int:
        return max(self.fewest, self._rows_of(steps))

    def recent(self, steps: float = WINDOW) -> list[Row]:
        """The rows of the last steps; empty while there are too few."""
        needed = self.rows_for(max(steps, self.least_steps))
        return list(self._last)[-needed:] if len(self._last) >= needed else []

    def earliest(self, steps: float = WINDOW) -> list[Row]:
        return self._first[: self.rows_for(steps)]

    def beginning(self, steps: float = BEGINNING) -> list[Row]:
        """The same without a lower limit on the number of rows."""
        return self._first[: max(1, self._rows_of(steps))]

    def _rows_of(self, steps: float) -> int:
        return math.ceil(steps / max(1.0, self.steps_per_row))


class History:
    """The rows of the current stage, and evaluations of all stages, in bounded memory.

    Attributes:
        rows: with rewards at the weights of the configuration; sampled: those with figures of completions.
        rows_since_warmup: rows since the learning rate stopped to rise.
        first_kl, last_kl: step and value.
        best, best_step: the highest mean reward of a window, and the step at its end.
        has_risen: whether some window had a reward clearly above the first one's.
    """

    def __init__(self, facts: RunFacts) -> None:
        self._run = facts
        self.evaluations: deque[Evaluation] = deque(maxlen=_EVALUATIONS)
        self.summary: Row | None = None
        self._begin(None)

    def _begin(self, stage: object) -> None:
        self._stage = stage
        self.facts = self._run.of_stage(stage)
        self.rows, self.sampled = RowSeries(), RowSeries(_steps_of_enough_completions(self.facts))
        self.scale = RewardScale.of(self.facts.rewards)
        adapts = any(reward.adaptive for reward in self.facts.rewards)
        self.reward_name = "reward at the first weights" if adapts else "reward"
        self.rows_since_warmup = 0
        self.first_kl: tuple[int, float] | None = None
        self.last_kl: tuple[int, float] | None = None
        self.best: Estimate | None = None
        self.best_step = 0
        self.has_risen = False
        self._squared_jumps = 0.0

    def add(self, row: Row) -> None:
        """Add the next row, of a step or of an evaluation."""
        if not is_step_row(row):
            self._add_evaluation(row)
            return
        if not self.rows.count or row.get("stage") != self._stage:
            self._begin(row.get("stage"))
        row = _at_first_weights(self.facts.rewards, row)
        rate, rate_before = (number(each, "learning_rate") or 0.0 for each in (row, self.rows.last))
        self.rows_since_warmup += bool(self.rows.count) and rate <= rate_before
        self.rows.add(row)
        kl = number(row, "kl")
        if kl is not None:
            self.last_kl = (self.step, kl)
            self.first_kl = self.first_kl or self.last_kl
        if any(number(row, name) is not None for name in _OF_SAMPLING):
            self._add_sampled(row)

    def _add_sampled(self, row: Row) -> None:
        before, now = (number(each, "reward") for each in (self.sampled.last, row))
        if before is not None and now is not None:
            self._squared_jumps += (now - before) ** 2
        self.sampled.add(row)
        if self.sampled.count < self.rows.count:  # a row is then one batch, however many steps lie between two
            self.sampled.fewest = FEWEST_SAMPLED
        self._compare_rewards(self.reward_in(self.sampled.recent()), self.reward_in(self.sampled.earliest()))

    def _compare_rewards(self, now: Estimate | None, first: Estimate | None) -> None:
        if now is None or first is None:
            return
        if self.best is None or now.mean > self.best.mean:
            self.best, self.best_step = now, self.step
        self.has_risen |= now.is_above(first, RISEN)

    def _add_evaluation(self, row: Row) -> None:
        value, deviation, problems = number(row, "eval/accuracy"), None, number(row, "eval/problems")
        if value is None:
            value, deviation = number(row, "eval/reward"), number(row, "eval/reward_std")
            if value is None or deviation is None:  # of one problem
                return
        if problems is not None:
            reward = self.reward_in(self.sampled.recent() or self.sampled.earliest())
            self.evaluations.append(
                Evaluation(int(row["step"]), value, problems, reward, self.first_reward, self._stage, deviation)
            )

    @property
    def step(self) -> int:
        return int(self.rows.last.get("step", 0))

    @property
    def first_reward(self) -> Estimate | None:
        rows = self.sampled.earliest()
        return self.reward_in(rows) if len(rows) >= FEWEST_ROWS else None

    @property
    def reward_noise(self) -> float:
        """Standard deviation of a row's reward, from the differences of neighbours: a slow change is no noise."""
        return math.sqrt(self._squared_jumps / 2 / max(1, self.sampled.count - 1))

    def reward_in(self, rows: Iterable[Row]) -> Estimate | None:
        return estimate(values(rows, "reward"))

    def has_tokens(self, rows: Sequence[Row], length: float | None) -> bool:
        """Whether rows of completions of that mean length hold enough tokens for a mean over them."""
        per_step = self.facts.completions_per_step
        if length is None or per_step is None:
            return bool(length)
        return length * per_step * len(rows) * max(1.0, self.sampled.steps_per_row) >= FEWEST_TOKENS


def steps_needed(facts: RunFacts) -> float:
    """Steps of a window of completions."""
    return max(WINDOW, _steps_of_enough_completions(facts))


def _steps_of_enough_completions(facts: RunFacts) -> float:
    """More where each step draws few, and no more than are kept; 0 where nobody knows how many it draws."""
    per_step = facts.completions_per_step
    return min(_LAST_ROWS, math.ceil(FEWEST_COMPLETIONS / per_step)) if per_step else 0


def _at_first_weights(rewards: Sequence[RewardFact], row: Row) -> Row:
    """The row, and where weights adapt, with the reward and the spreads that it would have had they not."""
    scores = [(reward, number(row, f"rewards/{reward.name}/mean")) for reward in rewards]
    parts = [reward.weight * score for reward, score in scores if score is not None]
    if not any(reward.adaptive for reward in rewards) or len(parts) < len(scores):
        return row
    weights = [number(row, f"rewards/{reward.name}/weight") for reward in rewards]
    now = max(abs(first.weight if weight is None else weight) for first, weight in zip(rewards, weights, strict=True))
    larger = RewardScale.of(rewards).largest / (now or 1.0)
    spreads = {
        name: larger * row[name] for name in ("reward_std", "groups/reward_std") if number(row, name) is not None
    }
    return {**row, **spreads, "reward": math.fsum(parts)}


def number(row: Row, metric: str) -> float | None:
    """The metric of a row; None where it has none, or no finite one."""
    value: Any = row.get(metric)
    return float(value) if is_number(value) else None


def values(rows: Iterable[Row], metric: str) -> list[float]:
    """The metric of those rows that have it as a finite number."""
    return [float(row[metric]) for row in rows if is_number(row.get(metric))]


def median(rows: Sequence[Row], metric: str) -> float | None:
    """Median of a metric; None where fewer than half of the rows have it."""
    found = values(rows, metric)
    return statistics.median(found) if found and 2 * len(found) >= len(rows) else None


def mean(rows: Sequence[Row], metric: str) -> float | None:
    """Mean of a metric, where a median of a few completions would be all or nothing; None as in `median`."""
    found = values(rows, metric)
    return math.fsum(found) / len(found) if found and 2 * len(found) >= len(rows) else None


def estimate(found: Sequence[float]) -> Estimate | None:
    """Mean and its standard error; None for fewer than two values."""
    if len(found) < 2:
        return None
    average = math.fsum(found) / len(found)
    squares = math.fsum((value - average) ** 2 for value in found)  # statistics.stdev is 50 times slower
    return Estimate(average, math.sqrt(squares / (len(found) - 1) / len(found)))


def recurs(count: int, rows: Sequence[Row]) -> bool:
    """Whether something that happened in so many of these rows is no accident."""
    return count >= max(2, RECURRING * len(rows))
