"""The completions that pass a sieve, as columns of numbers: millions of them fit, and no text is held."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
import pyarrow as pa

from rlvr_vocab.analysis.samples.sieve import Judge, Order, Sieve
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.completions import CompletionFiles

RIGHT, WRONG, UNKNOWN = 1, 0, -1
_NEARLY = 1e-6


@dataclass(frozen=True, eq=False)
class Matches:
    """Places of completions, in the order in which they are shown; N of them.

    Attributes:
        steps: `(N,)` int64.
        rows: `(N,)` int64, from 1 in the file of each step.
        rewards: `(N,)` float64.
        verdicts: `(N,)` int8: RIGHT, WRONG, or UNKNOWN where the judge gave no score.
        problems: `(N,)` int64, one number for each prompt in the order of their first appearance; zeros where the
            order does not ask for it.
    """

    steps: np.ndarray
    rows: np.ndarray
    rewards: np.ndarray
    verdicts: np.ndarray
    problems: np.ndarray

    def __len__(self) -> int:
        return len(self.steps)

    def place(self, index: int) -> tuple[int, int]:
        """Step and row."""
        return int(self.steps[index]), int(self.rows[index])

    def index_of(self, place: tuple[int, int]) -> int | None:
        """Where a completion stands among them; None where it is not one of them."""
        found = np.flatnonzero((self.steps == place[0]) & (self.rows == place[1]))
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
        """In the order of the files, by reward, or each problem over time; equals stay in the order of the files."""
        if order == "file":
            return self
        if order == "problem":
            key = self.problems
        else:
            key = -self.rewards if order == "highest" else self.rewards
        return self._at(np.argsort(key, kind="stable"))

    def first(self, most: int | None) -> Matches:
        """The first so many; all of them with None."""
        return self._at(slice(most))

    def _at(self, which: np.ndarray | slice) -> Matches:
        return Matches(*(getattr(self, name)[which] for name in _COLUMNS))

    @staticmethod
    def together(parts: Sequence[Matches]) -> Matches:
        if not parts:
            nothing = np.empty(0, dtype=np.int64)
            return Matches(nothing, nothing, np.empty(0), np.empty(0, dtype=np.int8), nothing)
        return Matches(*(np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS))


_COLUMNS = tuple(each.name for each in fields(Matches))


@dataclass
class Search:
    """Goes through the files of a run, a step at a time.

    Attributes:
        unreadable: what is to be said of the files that could not be read.
        pending: the steps that are still to be looked at.
    """

    files: CompletionFiles
    sieve: Sieve
    judge: Judge | None
    order: Order
    unreadable: list[str] = field(default_factory=list)
    pending: list[int] = field(init=False)
    number_of_steps: int = field(init=False)
    _parts: list[Matches] = field(default_factory=list)
    _problems: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pending = [step for step in reversed(self.files.steps) if self.sieve.has_step(step)]
        self.number_of_steps = len(self.pending)

    def take_step(self) -> None:
        """Look at the next step; a file that is half-written, damaged or none of ours is noted, and passed over."""
        step = self.pending.pop()
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
        """What has been found so far, in order."""
        self._parts = [Matches.together(self._parts)]
        return self._parts[0].ordered(self.order)

    def _of_step(self, step: int) -> Matches:
        table = self.files.table(step, self._columns())
        rows = np.flatnonzero(passing(table, self.sieve, self.judge))
        rewards = _numbers(table, "reward")[rows]
        return Matches(
            np.full(len(rows), step, dtype=np.int64),
            rows.astype(np.int64) + 1,
            rewards,
            verdicts_of(table, self.judge)[rows],
            self._numbered_problems(table, rows),
        )

    def _columns(self) -> list[str]:
        wanted = ["reward"]
        if self.sieve.problem is not None or self.sieve.prompt is not None or self.order == "problem":
            wanted.append("prompt")
        if self.sieve.contains is not None:
            wanted.append("completion")
        return wanted if self.judge is None else [*wanted, f"reward/{self.judge.name}"]

    def _numbered_problems(self, table: pa.Table, rows: np.ndarray) -> np.ndarray:
        if self.order != "problem":
            return np.zeros(len(rows), dtype=np.int64)
        prompts = table["prompt"].take(rows).to_pylist()
        return np.array([self._problems.setdefault(each, len(self._problems)) for each in prompts], dtype=np.int64)


def search_all(search: Search) -> Iterator[tuple[int, int]]:
    """Look at every step that is left; yields how many are done, and of how many."""
    while search.pending:
        search.take_step()
        yield search.number_of_steps - len(search.pending), search.number_of_steps


def passing(table: pa.Table, sieve: Sieve, judge: Judge | None) -> np.ndarray:
    """Which rows of a step pass, its step apart: `(rows,)` of bool."""
    passes = np.ones(len(table), dtype=bool)
    for column, text in (("prompt", sieve.problem), ("completion", sieve.contains)):
        if text is not None:
            passes &= _holds(table[column], text)
    if sieve.prompt is not None:
        passes &= np.array([each == sieve.prompt for each in table["prompt"].to_pylist()], dtype=bool)
    if sieve.min_reward is not None:
        passes &= _numbers(table, "reward") >= sieve.min_reward - _NEARLY
    if sieve.max_reward is not None:
        passes &= _numbers(table, "reward") <= sieve.max_reward + _NEARLY
    if sieve.verdict is not None:
        passes &= verdicts_of(table, judge) == (RIGHT if sieve.verdict == "right" else WRONG)
    return passes


def verdicts_of(table: pa.Table, judge: Judge | None) -> np.ndarray:
    """`(rows,)` int8: RIGHT, WRONG or UNKNOWN."""
    if judge is None or f"reward/{judge.name}" not in table.column_names:
        return np.full(len(table), UNKNOWN, dtype=np.int8)
    scores = _numbers(table, f"reward/{judge.name}")
    return np.where(np.isnan(scores), UNKNOWN, np.where(scores >= judge.least, RIGHT, WRONG)).astype(np.int8)


def _numbers(table: pa.Table, column: str) -> np.ndarray:
    """A column of numbers, NaN where a row has none."""
    # Not `to_numpy`, which imports pandas to look whether that is what it gives: a second, before anything is shown.
    return np.array(table[column].to_pylist(), dtype=np.float64)


def _holds(column: pa.ChunkedArray, text: str) -> np.ndarray:
    """Whether each row of a column of texts holds a text, in capitals or not."""
    import pyarrow.compute as pc  # only here: opening a run should not wait for it

    found = pc.match_substring(column, pattern=text, ignore_case=True).to_pylist()
    return np.array([bool(each) for each in found], dtype=bool)
