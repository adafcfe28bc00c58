"""Windows of the first and last rows of a stage, held-out evaluations, and the `Finding` that a rule makes of them."""

from __future__ import annotations

import math
import re
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rlvr_vocab.record.metrics import RewardFact, Row, RunFacts, is_number, is_step_row
from rlvr_vocab.rewards.reward import traits_by_name

WINDOW = 10.0  # steps: the figures of one follow the luck of a few problems
FEWEST_ROWS = 3  # of a window, however many steps a row holds
FEWEST_SAMPLED = 5  # rows, where not every row has figures of completions: such a row holds one batch
FEWEST_COMPLETIONS = 100  # of a window, which is made longer where it has fewer
BEGINNING = 3.0  # steps: at a rate that is far too high, ten do not show where a run began
RISEN = 3.0  # standard errors that a window lies above the first (simulated: docs/reading_runs.md)
# Parts of the full reward: below the first no group of eight has much chance of two right answers.
NEARLY_NONE, NEARLY_ALL = 0.1, 0.9
RECURRING = 0.3  # share of rows

_ALL_OR_NOTHING = 0.8  # of the variance of scores of 0 and 1: partial credit for half of the answers has less
_HELD_OUT = ("accuracy", "reward", "reward_std")
_FIRST_ROWS, _LAST_ROWS, _EVALUATIONS = 50, 100, 200
# Only a row for which completions were sampled has these: not so where several updates are made from one batch.
_OF_SAMPLING = ("reward", "completions/mean_length", "completions/clipped_ratio")


def library_name(reward: RewardFact) -> str:
    """The name under which the library may have a reward function; a second one of a name is logged as name_2."""
    return re.sub(r"_\d+$", "", reward.name)


def full_mark(reward: RewardFact) -> float:
    """The score of success."""
    return traits_by_name(library_name(reward)).full_mark if reward.full_mark is None else reward.full_mark


@dataclass(frozen=True)
class Finding:
    """One fault of a run; `Doctor` fills in `name`, and the last step where a rule gives none.

    severity: `error` where the run cannot have learned its task, else `warning`.
    evidence: figures, steps, and the threshold that they passed; step: the first at which it could be seen.
    cause: the likeliest reason; remedy: a line with the keys to change.
    name: such as `kl_high`; each name is found once in a run. title: the same for people.
    """

    title: str
    severity: Literal["warning", "error"]
    evidence: str
    cause: str
    remedy: str
    step: int = -1
    name: str = ""


class Estimate(NamedTuple):
    """A mean, and its standard error."""

    mean: float
    error: float

    def is_above(self, other: Estimate, errors: float) -> bool:
        """Whether it is higher by more than `errors` standard errors of the difference."""
        return self.mean - other.mean > errors * math.hypot(self.error, other.error)


class Evaluation(NamedTuple):
    """Accuracy, or reward, on held-out problems, with the training reward then and at the beginning of its stage.

    `spread` is the standard deviation of the reward over the problems, and 1 for an accuracy; `trained`, and
    `first_trained`, are then the accuracy of the completions that were trained on, by the reward that grades.
    """

    step: int
    value: float
    error: float
    spread: float
    reward: Estimate | None
    first_reward: Estimate | None
    stage: object
    trained: Estimate | None = None
    first_trained: Estimate | None = None


class Window(list[Row]):
    """Consecutive rows."""

    @property
    def steps(self) -> str:
        first, last = self[0]["step"], self[-1]["step"]
        return f"step {first}" if first == last else f"steps {first} to {last}"

    def values(self, metric: str) -> list[float]:
        """The metric of those rows that have it as a finite number."""
        return [float(row[metric]) for row in self if is_number(row.get(metric))]

    def median(self, metric: str) -> float | None:
        """None where fewer than half of the rows have the metric."""
        found = self.values(metric)
        return statistics.median(found) if found and 2 * len(found) >= len(self) else None

    def mean(self, metric: str) -> float | None:
        """For metrics of which a median of a few completions would be all or nothing; None as for `median`."""
        found = self.values(metric)
        return math.fsum(found) / len(found) if found and 2 * len(found) >= len(self) else None

    def estimate(self, metric: str) -> Estimate | None:
        """The mean and its standard error; None for fewer than two values."""
        found = self.values(metric)
        if len(found) < 2:
            return None
        average = math.fsum(found) / len(found)
        squares = math.fsum((value - average) ** 2 for value in found)  # statistics.stdev is 50 times slower
        return Estimate(average, math.sqrt(squares / (len(found) - 1) / len(found)))

    def accuracy(self, reward: str) -> Estimate | None:
        """The mean score of a reward function; None where its spread is below that of scores of 0 and 1 alone."""
        found, spreads = self.estimate(f"rewards/{reward}/mean"), self.values(f"rewards/{reward}/std")
        if found is None or not spreads:
            return None
        variance = math.fsum(each**2 for each in spreads) / len(spreads)
        return found if variance >= _ALL_OR_NOTHING * found.mean * (1 - found.mean) else None

    def recurs(self, count: int) -> bool:
        """Whether an event in `count` of these rows recurs: at least twice, and in three of ten rows."""
        return count >= max(2, RECURRING * len(self))


class RowSeries:
    """Rows in their order, in bounded memory; windows are given in steps, however many steps a row holds.

    `fewest` is the least number of rows of a window, `least_steps` the least number of steps of `recent`.
    """

    def __init__(self, least_steps: float = 0.0) -> None:
        self.count, self.fewest, self.least_steps = 0, FEWEST_ROWS, least_steps
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

    def rows_for(self, steps: float, fewest: int | None = None) -> int:
        return max(self.fewest if fewest is None else fewest, math.ceil(steps / max(1.0, self.steps_per_row)))

    def recent(self, steps: float = WINDOW) -> Window:
        """The rows of the last steps; empty while there are too few."""
        needed = self.rows_for(max(steps, self.least_steps))
        return Window(list(self._last)[-needed:] if len(self._last) >= needed else [])

    def earliest(self, steps: float = WINDOW, fewest: int | None = None) -> Window:
        return Window(self._first[: self.rows_for(steps, fewest)])


class History:
    """The rows of the current stage, and evaluations of all stages, in bounded memory.

    facts: of the current stage; before_and_after: the measurements of a finished run.
    rows: with rewards at the weights of the configuration; sampled: those with figures of completions.
    rows_since_warmup: rows since the learning rate stopped to rise; kl: steps and values, the first and the last.
    best, best_step: the highest mean reward of a window, and the step at its end.
    has_risen: whether some window had a reward clearly above the first one's.
    """

    def __init__(self, facts: RunFacts) -> None:
        self._run = facts
        self.evaluations: deque[Evaluation] = deque(maxlen=_EVALUATIONS)
        self.before_and_after: tuple[Evaluation | None, Evaluation | None] = (None, None)
        self.thoughts: Sequence[Row] = ()
        self._begin(None)

    def _begin(self, stage: object) -> None:
        self._stage, self.facts = stage, next((each for each in self._run.stages if each.stage == stage), self._run)
        self.rows, self.sampled = RowSeries(), RowSeries(steps_of_enough_completions(self.facts))
        rewards = self.facts.rewards
        self.largest_weight = max((abs(each.weight) for each in rewards), default=1.0) or 1.0
        self.full_reward = sum(each.weight * full_mark(each) for each in rewards if each.weight > 0)
        grading = [each for each in rewards if traits_by_name(library_name(each)).grades] or rewards[:1]
        self._grading = grading[0].name if grading else ""
        self.rows_since_warmup = 0
        self.kl: list[tuple[int, float]] = []
        self.best: Estimate | None = None
        self.best_step = 0
        self.has_risen = False
        self._squared_jumps = 0.0

    def add(self, row: Row) -> None:
        """Add the next row, of a step or of an evaluation."""
        if not is_step_row(row):
            names = [f"eval/{name}" for name in (*_HELD_OUT, "problems")]
            rows = self.sampled.recent() or self.sampled.earliest()
            if found := self._evaluation(row, names, int(row["step"]), rows):
                self.evaluations.append(found)
            return
        if not self.rows.count or row.get("stage") != self._stage:
            self._begin(row.get("stage"))
        row = self._at_first_weights(row)
        rate, rate_before = (number(each, "learning_rate") or 0.0 for each in (row, self.rows.last))
        self.rows_since_warmup += bool(self.rows.count) and rate <= rate_before
        self.rows.add(row)
        kl = number(row, "kl")
        if kl is not None:
            self.kl = [*self.kl[:1], (self.step, kl)]
        if any(number(row, name) is not None for name in _OF_SAMPLING):
            self._add_sampled(row)

    def _add_sampled(self, row: Row) -> None:
        before, now = number(self.sampled.last, "reward"), number(row, "reward")
        if before is not None and now is not None:
            self._squared_jumps += (now - before) ** 2
        self.sampled.add(row)
        if self.sampled.count < self.rows.count:  # a row is then one batch, however many steps lie between two
            self.sampled.fewest = FEWEST_SAMPLED
        recent, first = (rows.estimate("reward") for rows in (self.sampled.recent(), self.sampled.earliest()))
        if recent is not None and first is not None:
            if self.best is None or recent.mean > self.best.mean:
                self.best, self.best_step = recent, self.step
            self.has_risen |= recent.is_above(first, RISEN)

    def close(self, summary: Row) -> None:
        """Add the measurements before and after a finished run, and `thoughts`, what its rewards read of them."""
        self.thoughts = summary.get("thoughts", ())
        first = self.sampled.earliest()
        before, after = ([*(f"{name}_{at}" for name in _HELD_OUT), "held_out_problems"] for at in ("before", "after"))
        self.before_and_after = (
            self._evaluation(summary, before, 0, first if len(first) >= FEWEST_ROWS else Window()),
            self._evaluation(summary, after, self.step, self.sampled.recent()),
        )

    def _evaluation(self, row: Row, names: Sequence[str], step: int, rows: Window) -> Evaluation | None:
        """The measurement in a row, with the rows of steps around it; None for one problem's reward, without spread."""
        now = rows.estimate("reward")
        accuracy, reward, deviation, problems = (number(row, name) for name in names)
        if problems and accuracy is not None:
            share = (accuracy * problems + 1) / (problems + 2)  # one more right, and one more wrong problem
            error = math.sqrt(share * (1 - share) / max(1, problems - 1))
            trained = [each.accuracy(self._grading) for each in (rows, self.sampled.earliest())]
            return Evaluation(step, accuracy, error, 1.0, now, self.first_reward, self._stage, *trained)
        if problems and reward is not None and deviation is not None:
            error = deviation / math.sqrt(problems)
            return Evaluation(step, reward, error, deviation, now, self.first_reward, self._stage)
        return None

    def _at_first_weights(self, row: Row) -> Row:
        """The row; where weights adapt, with the reward at the first weights, and without its spread."""
        rewards = self.facts.rewards
        scores = [number(row, f"rewards/{each.name}/mean") for each in rewards]
        known = [each.weight * score for each, score in zip(rewards, scores, strict=True) if score is not None]
        if not any(each.adaptive for each in rewards) or len(known) < len(rewards):
            return row
        return {**row, "reward": math.fsum(known), "reward_std": None, "groups/reward_std": None}

    @property
    def step(self) -> int:
        return int(self.rows.last.get("step", 0))

    @property
    def first_reward(self) -> Estimate | None:
        rows = self.sampled.earliest()
        return rows.estimate("reward") if len(rows) >= FEWEST_ROWS else None

    @property
    def reward_noise(self) -> float:
        """Standard deviation of a row's reward, from the differences of neighbours: a slow change is no noise."""
        return math.sqrt(self._squared_jumps / 2 / max(1, self.sampled.count - 1))

    def is_near_zero(self, reward: float) -> bool:
        """Never where 0 is the full reward, as with penalties alone."""
        return self.full_reward > 0 and abs(reward) <= NEARLY_NONE * self.full_reward

    def is_near_full(self, reward: float | None) -> bool:
        """A reward far above the full one is on another scale."""
        distance = math.inf if reward is None else abs(reward - self.full_reward)
        return distance <= (1 - NEARLY_ALL) * (abs(self.full_reward) or self.largest_weight)


def steps_of_enough_completions(facts: RunFacts) -> float:
    """More where each step draws few, and no more than are kept."""
    return min(_LAST_ROWS, math.ceil(FEWEST_COMPLETIONS / facts.completions_per_step))


def number(row: Row, metric: str) -> float | None:
    """The metric of a row; None where it has none, or no finite one."""
    value = row.get(metric)
    return float(value) if is_number(value) else None
