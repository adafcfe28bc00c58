"""The first and the last rows of a series, however long it grows."""

from __future__ import annotations

import math
from collections import deque

from rlvr_vocab.analysis.doctor.thresholds import LIMITS
from rlvr_vocab.record.metrics import Row

_FIRST_ROWS, MOST_ROWS = 50, 100


class Windows:
    """Rows in their order, in bounded memory; windows are given in steps.

    Attributes:
        count: how many there were.
        fewest: a window has no fewer rows.
    """

    def __init__(self) -> None:
        self.count = 0
        self.fewest = int(LIMITS.fewest_rows)
        self._first: list[Row] = []
        self._last: deque[Row] = deque(maxlen=MOST_ROWS)
        self._windows: dict[int, list[Row]] = {}  # of the present row, by length

    def add(self, row: Row) -> None:
        self.count += 1
        self._windows.clear()
        self._last.append(row)
        if len(self._first) < _FIRST_ROWS:
            self._first.append(row)

    @property
    def last(self) -> Row | None:
        return self._last[-1] if self._last else None

    @property
    def steps_per_row(self) -> float:
        rows = self._last
        return (rows[-1]["step"] - rows[0]["step"]) / (len(rows) - 1) if len(rows) > 1 else 1.0

    def rows_for(self, steps: float) -> int:
        """How many rows hold so many steps."""
        return max(self.fewest, math.ceil(steps / max(1.0, self.steps_per_row)))

    def recent(self, steps: float) -> list[Row]:
        """The rows of the last steps; none as long as there are too few."""
        needed = self.rows_for(steps)
        if needed not in self._windows:
            self._windows[needed] = list(self._last)[-needed:] if len(self._last) >= needed else []
        return self._windows[needed]

    def earliest(self, steps: float) -> list[Row]:
        """The rows of the first steps."""
        return self._first[: self.rows_for(steps)]

    def beginning(self, steps: float) -> list[Row]:
        """The same, and no more than them: a single row, where it holds so many."""
        return self._first[: max(1, math.ceil(steps / max(1.0, self.steps_per_row)))]
