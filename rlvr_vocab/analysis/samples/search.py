"""The completions that pass a filter, as columns of numbers: millions of them fit, and no text is held."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
import pyarrow as pa

from rlvr_vocab.analysis.samples.filter import CorrectnessReward, Order, SampleFilter
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.completions import CompletionFiles

SampleId = tuple[int, int]  # step and row
RIGHT, WRONG, UNKNOWN = 1, 0, -1
_NEARLY = 1e-6


@dataclass(frozen=True, eq=False)
class Matches:
    """The completions found, in the order in which they are shown; N of them.

    Attributes:
        steps: `(N,)` int64.
        rows: `(N,)` int64, from 1 in the file of each step.
        rewards: `(N,)` float64.
        verdicts: `(N,)` int8: RIGHT, WRONG, or UNKNOWN where the correctness reward gave none.
    """

    steps: np.ndarray
    rows: np.ndarray
    rewards: np.ndarray
    verdicts: np.ndarray

    def __len__(self) -> int:
        return len(self.steps)

    def sample_id(self, index: int) -> SampleId:
        return int(self.steps[index]), int(self.rows[index])

    def index_of(self, sample_id: SampleId) -> int | None:
        """Index of a completion; None where it is not among them."""
        found = np.flatnonzero((self.steps == sample_id[0]) & (self.rows == sample_id[1]))
        return int(found[0]) if len(found) else None

    def first_of_step(self, step: int) -> int | None:
        """The first one shown of a step, or of the nearest step that has any."""
        if not len(self):
            return None
        return int(np.argmin(np.abs(self.steps - min(step, int(self.steps.max())))))  # any number may be typed

    def neighbour_step(self, index: int, direction: int) -> int:
        """The first one shown of the next step (1) or of the one before (-1), in the order shown; else `index`."""
        others = np.flatnonzero(self.steps != self.steps[index])
        beyond = others[others > index] if direction > 0 else others[others < index]
        if not len(beyond):
            return index
        found = int(beyond[0] if direction > 0 else beyond[-1])
        while found > 0 and self.steps[found - 1] == self.steps[found]:
            found -= 1
        return found

    def ordered(self, order: Order) -> Matches:
        """In the order of the files, or by reward; equals stay in the order of the files."""
        if order == "file":
            return self
        return self._at(np.argsort(-self.rewards if order == "highest" else self.rewards, kind="stable"))

    def first(self, most: int | None) -> Matches:
        """The first so many; all of them with None."""
        return self._at(slice(most))

    def _at(self, which: np.ndarray | slice) -> Matches:
        return Matches(*(getattr(self, name)[which] for name in _COLUMNS))

    @staticmethod
    def joined(parts: Sequence[Matches]) -> Matches:
        """The matches of several steps, one after the other."""
        if not parts:
            nothing = np.empty(0, dtype=np.int64)
            return Matches(nothing, nothing, np.empty(0), np.empty(0, dtype=np.int8))
        return Matches(*(np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS))


_COLUMNS = tuple(each.name for each in fields(Matches))


@dataclass
class Search:
    """Goes through the files of a run, a step at a time.

    Attributes:
        unreadable: a message for each file that could not be read.
        steps_left: the steps that are still to be searched, the next one last.
    """

    files: CompletionFiles
    sample_filter: SampleFilter
    correctness: CorrectnessReward | None
    order: Order
    unreadable: list[str] = field(default_factory=list)
    steps_left: list[int] = field(init=False)
    number_of_steps: int = field(init=False)
    _parts: list[Matches] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.steps_left = [step for step in reversed(self.files.steps) if self.sample_filter.has_step(step)]
        self.number_of_steps = len(self.steps_left)

    def take_step(self) -> None:
        """Search the next step; a file that is half-written, damaged or none of ours is noted, and passed over."""
        step = self.steps_left.pop()
        try:
            part = self._of_step(step)
        except UserError as error:
            self.unreadable.append(str(error))
            return
        except (KeyError, ValueError, pa.ArrowException) as error:
            self.unreadable.append(f"{self.files.folder}: step {step} has not the columns of a run ({error})")
            return
        if len(part):
            self._parts.append(part)

    def found(self) -> Matches:
        """The matches found so far, in order."""
        self._parts = [Matches.joined(self._parts)]
        return self._parts[0].ordered(self.order)

    def _of_step(self, step: int) -> Matches:
        table = self.files.table(step, self._columns())
        rows = np.flatnonzero(passing(table, self.sample_filter, self.correctness))
        rewards = _numbers(table, "reward")[rows]
        return Matches(
            np.full(len(rows), step, dtype=np.int64),
            rows.astype(np.int64) + 1,
            rewards,
            verdicts_of(table, self.correctness)[rows],
        )

    def _columns(self) -> list[str]:
        wanted = ["reward"]
        if self.sample_filter.problem is not None or self.sample_filter.prompt is not None:
            wanted.append("prompt")
        if self.sample_filter.contains is not None:
            wanted.append("completion")
        return wanted if self.correctness is None else [*wanted, f"reward/{self.correctness.name}"]


def search_all(search: Search) -> Iterator[tuple[int, int]]:
    """Search every step that is left; yields how many are done, and of how many."""
    while search.steps_left:
        search.take_step()
        yield search.number_of_steps - len(search.steps_left), search.number_of_steps


def passing(table: pa.Table, sample_filter: SampleFilter, correctness: CorrectnessReward | None) -> np.ndarray:
    """Whether each row of a step passes the filter, conditions on the step apart: `(rows,)` of bool."""
    passes = np.ones(len(table), dtype=bool)
    for column, text in (("prompt", sample_filter.problem), ("completion", sample_filter.contains)):
        if text is not None:
            passes &= _holds(table[column], text)
    if sample_filter.prompt is not None:
        passes &= np.array([each == sample_filter.prompt for each in table["prompt"].to_pylist()], dtype=bool)
    if sample_filter.min_reward is not None:
        passes &= _numbers(table, "reward") >= sample_filter.min_reward - _NEARLY
    if sample_filter.max_reward is not None:
        passes &= _numbers(table, "reward") <= sample_filter.max_reward + _NEARLY
    if sample_filter.verdict is not None:
        passes &= verdicts_of(table, correctness) == (RIGHT if sample_filter.verdict == "right" else WRONG)
    return passes


def verdicts_of(table: pa.Table, correctness: CorrectnessReward | None) -> np.ndarray:
    """`(rows,)` int8: RIGHT, WRONG or UNKNOWN."""
    if correctness is None or f"reward/{correctness.name}" not in table.column_names:
        return np.full(len(table), UNKNOWN, dtype=np.int8)
    scores = _numbers(table, f"reward/{correctness.name}")
    return np.where(np.isnan(scores), UNKNOWN, np.where(scores >= correctness.threshold, RIGHT, WRONG)).astype(np.int8)


def _numbers(table: pa.Table, column: str) -> np.ndarray:
    """A column of numbers, NaN where a row has none."""
    # Not `to_numpy`, which imports pandas to look whether that is what it gives: a second, before anything is shown.
    return np.array(table[column].to_pylist(), dtype=np.float64)


def _holds(column: pa.ChunkedArray, text: str) -> np.ndarray:
    """Whether each row of a column of texts holds a text, in capitals or not."""
    import pyarrow.compute as pc  # only here: opening a run should not wait for it

    found = pc.match_substring(column, pattern=text, ignore_case=True).to_pylist()
    return np.array([bool(each) for each in found], dtype=bool)
