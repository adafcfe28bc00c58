"""Which problems of a training set come next, where the trainer itself chooses them and not the loader of batches."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

ORDER_STATE = "problem_order.json"


class ProblemOrder:
    """Draws problems in an order that follows from the seed, each once in a pass but for those that are solved.

    Every process holds one, and all draw alike. It is part of a checkpoint.

    Args:
        problems: how many there are.
        skip_solved: so often in a row a problem must have been answered right throughout not to be drawn again.
    """

    def __init__(self, problems: int, seed: int, skip_solved: int | None = None) -> None:
        self._problems, self._seed, self._skip_solved = problems, seed, skip_solved
        self._drawn = self._passed_over = 0
        self._rates: dict[int, float] = {}  # of the last time, by place in the set
        self._streaks: Counter[int] = Counter()
        self._go_to(0, 0)

    def _go_to(self, passes: int, place: int) -> None:
        self._passes, self._place = passes, place
        self._of_pass = np.random.default_rng((self._seed, 0, passes)).permutation(self._problems)

    def draw(self, count: int) -> list[int]:
        """The places in the set of the next problems."""
        return [self._next() for _ in range(count)]

    def _next(self) -> int:
        self._drawn += 1
        for _ in range(2 * self._problems):  # a whole pass at least
            place = self._step()
            if self._skip_solved is None or self._streaks[place] < self._skip_solved:
                return place
            self._passed_over += 1
        return self._step()  # nothing else is left

    def _step(self) -> int:
        if self._place == self._problems:
            self._go_to(self._passes + 1, 0)
        self._place += 1
        return int(self._of_pass[self._place - 1])

    def observe(self, place: int, rate: float) -> None:
        """Take note of the share of right completions of a problem that was drawn."""
        self._rates[place] = rate
        self._streaks[place] = self._streaks[place] + 1 if rate == 1 else 0

    def summary(self) -> dict[str, Any]:
        """What was drawn and what was not, for the records of a run."""
        found: dict[str, Any] = {"drawn": self._drawn}
        if self._skip_solved is not None:
            solved = sum(streak >= self._skip_solved for streak in self._streaks.values())
            found |= {"passed_over": self._passed_over, "problems_solved": solved}
        if self._rates:
            found["pass_rates"] = np.histogram(list(self._rates.values()), bins=10, range=(0, 1))[0].tolist()
        return found

    def save(self, folder: Path) -> None:
        state = {
            "passes": self._passes,
            "place": self._place,
            "drawn": self._drawn,
            "passed_over": self._passed_over,
            "rates": list(self._rates.items()),
            "streaks": list(self._streaks.items()),
        }
        (folder / ORDER_STATE).write_text(json.dumps(state) + "\n", encoding="utf-8")

    def restore(self, folder: Path) -> None:
        """Go on from a checkpoint; that of a training which did not choose its problems leaves the beginning."""
        if not (folder / ORDER_STATE).is_file():
            return
        state = json.loads((folder / ORDER_STATE).read_text(encoding="utf-8"))
        self._go_to(state["passes"], state["place"])
        self._drawn, self._passed_over = state["drawn"], state["passed_over"]
        self._rates, self._streaks = dict(state["rates"]), Counter(dict(state["streaks"]))
