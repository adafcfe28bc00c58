"""Which problems of a training set come next, where the trainer itself chooses them and not the loader of batches."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlvr_vocab.errors import UserError
from rlvr_vocab.training.settings import CurriculumSettings

ORDER_STATE = "problem_order.json"


class ProblemOrder:
    """Draws problems in an order that follows from the seed, each once in a pass but for what a curriculum puts off.

    Every process holds one, and all draw alike. It is part of a checkpoint.

    Args:
        columns: of the problem set, those that the curriculum goes by.
        problems: how many there are.

    Raises:
        UserError: the set lacks a task that has a share, or has a difficulty that is no number.
    """

    def __init__(self, columns: Mapping[str, Sequence[Any]], problems: int, seed: int, curriculum: CurriculumSettings):
        self._curriculum = curriculum
        tasks = _places_by_task(columns, problems, curriculum)
        self._shares = {task: (curriculum.mix or {}).get(task, 1.0) for task in tasks}
        self._streams = {task: _Stream(places, (seed, number)) for number, (task, places) in enumerate(tasks.items())}
        self._drawn_of: Counter[str] = Counter()
        self._rates: dict[int, float] = {}  # of the last time, by place in the set
        self._streaks: Counter[int] = Counter()
        self._passed_over: Counter[str] = Counter()
        self._ranks = _ranks(columns, problems, curriculum)
        by = curriculum.by_difficulty
        self._open = 1.0 if by.column is None else by.start
        self._recent: deque[float] = deque(maxlen=by.window)

    @classmethod
    def of(cls, problems: Any, seed: int, curriculum: CurriculumSettings) -> ProblemOrder:
        """That of the rows of a `datasets.Dataset`.

        Raises:
            UserError: also where it lacks a column that the curriculum goes by.
        """
        missing = [name for name in curriculum.columns if name not in problems.column_names]
        if missing:
            raise UserError(f"dataset.curriculum goes by the column {missing[0]}, which the problems do not have")
        return cls({name: problems[name] for name in curriculum.columns}, len(problems), seed, curriculum)

    def draw(self, count: int) -> list[int]:
        """The places in the set of the next problems."""
        return [self._next() for _ in range(count)]

    def _next(self) -> int:
        task = min(self._shares, key=lambda each: (self._drawn_of[each] + 1) / self._shares[each])
        self._drawn_of[task] += 1
        stream = self._streams[task]
        for _ in range(2 * len(stream.places)):  # a whole pass at least
            place = stream.next()
            reason = self._reason_to_pass_over(place, stream.passes)
            if reason is None:
                return place
            self._passed_over[reason] += 1
        return stream.next()  # nothing else is left

    def _reason_to_pass_over(self, place: int, passes: int) -> str | None:
        curriculum, by = self._curriculum, self._curriculum.by_difficulty
        if curriculum.skip_solved is not None and self._streaks[place] >= curriculum.skip_solved:
            return "solved"
        if self._ranks is not None and self._ranks[place] > self._open:
            return "too difficult yet"
        rate = self._rates.get(place)
        if by.band is not None and rate is not None and passes % by.again_after:
            low, high = by.band
            return "too difficult" if rate < low else "too easy" if rate > high else None
        return None

    def observe(self, place: int, rate: float) -> None:
        """Take note of the share of right completions of a problem that was drawn."""
        self._rates[place] = rate
        self._streaks[place] = self._streaks[place] + 1 if rate == 1 else 0
        by = self._curriculum.by_difficulty
        if by.column is None:
            return
        self._recent.append(rate)
        if len(self._recent) == by.window and sum(self._recent) / by.window > by.above and self._open < 1:
            self._open = min(1.0, self._open + by.step)
            self._recent.clear()

    def summary(self) -> dict[str, Any]:
        """What was drawn and what was not, for the records of a run."""
        found: dict[str, Any] = {"drawn": sum(self._drawn_of.values()), "passed_over": dict(self._passed_over)}
        if len(self._shares) > 1:
            found["drawn_by_task"] = dict(self._drawn_of)
        if self._ranks is not None:
            found["open_share"] = self._open
        solved = self._curriculum.skip_solved
        if solved is not None:
            found["problems_solved"] = sum(streak >= solved for streak in self._streaks.values())
        if self._rates:
            found["pass_rates"] = np.histogram(list(self._rates.values()), bins=10, range=(0, 1))[0].tolist()
        return found

    def save(self, folder: Path) -> None:
        state = {
            "streams": {task: [stream.passes, stream.place] for task, stream in self._streams.items()},
            "drawn_of": self._drawn_of,
            "rates": list(self._rates.items()),
            "streaks": list(self._streaks.items()),
            "passed_over": self._passed_over,
            "open": self._open,
            "recent": list(self._recent),
        }
        (folder / ORDER_STATE).write_text(json.dumps(state) + "\n", encoding="utf-8")

    def restore(self, folder: Path) -> None:
        """Go on from a checkpoint; that of a training which did not choose its problems leaves the beginning."""
        if not (folder / ORDER_STATE).is_file():
            return
        state = json.loads((folder / ORDER_STATE).read_text(encoding="utf-8"))
        for task, (passes, place) in state["streams"].items():
            if task in self._streams:
                self._streams[task].go_to(passes, place)
        self._drawn_of, self._passed_over = Counter(state["drawn_of"]), Counter(state["passed_over"])
        self._rates, self._streaks = dict(state["rates"]), Counter(dict(state["streaks"]))
        self._open = state["open"]
        self._recent.extend(state["recent"])


class _Stream:
    """Some problems in another order in each pass."""

    def __init__(self, places: Sequence[int], seed: tuple[int, int]) -> None:
        self.places, self._seed = np.asarray(places), seed
        self.go_to(0, 0)

    def go_to(self, passes: int, place: int) -> None:
        self.passes, self.place = passes, place
        self._of_pass = np.random.default_rng((*self._seed, passes)).permutation(self.places)

    def next(self) -> int:
        if self.place == len(self.places):
            self.go_to(self.passes + 1, 0)
        self.place += 1
        return int(self._of_pass[self.place - 1])


def _places_by_task(
    columns: Mapping[str, Sequence[Any]], problems: int, curriculum: CurriculumSettings
) -> dict[str, list[int]]:
    if curriculum.mix is None:
        return {"": list(range(problems))}
    found: dict[str, list[int]] = {}
    for place, task in enumerate(columns["task"]):
        found.setdefault(str(task), []).append(place)
    missing = [task for task in curriculum.mix if task not in found]
    if missing:
        raise UserError(f"dataset.curriculum.mix: no problem is of the task {missing[0]}; there are {', '.join(found)}")
    return {task: places for task, places in found.items() if curriculum.mix.get(task)}


def _ranks(
    columns: Mapping[str, Sequence[Any]], problems: int, curriculum: CurriculumSettings
) -> dict[int, float] | None:
    """For each problem the share of those that are as easy or easier; None where their order does not count."""
    by = curriculum.by_difficulty
    if by.column is None:
        return None
    try:
        difficulties = np.asarray([float(each) for each in columns[by.column]])
    except (TypeError, ValueError) as error:
        raise UserError(f"dataset.curriculum.by_difficulty.column={by.column}: {error}") from error
    as_easy = np.searchsorted(np.sort(difficulties), difficulties, side="left") / problems
    return dict(enumerate(as_easy.tolist()))
