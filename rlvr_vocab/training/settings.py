"""The settings of what trains, as plain dataclasses; needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr_vocab.counted import counted


@dataclass(frozen=True)
class UntilSettings:
    """Ends a stage early: the mean of `metric` over the last `window` logged steps is above, or below, a value."""

    metric: str
    above: float | None = None
    below: float | None = None
    window: int = 20

    def reached(self, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Whether the last rows reach it; rows without the metric are passed over.

        >>> UntilSettings("reward", above=0.5, window=2).reached([{"reward": 0.0}, {"reward": 0.5}, {"reward": 0.7}])
        True
        """
        values = [float(row[self.metric]) for row in rows if self.metric in row][-self.window :]
        if len(values) < self.window:
            return False
        mean = sum(values) / len(values)
        return mean > self.above if self.above is not None else self.below is not None and mean < self.below

    def __str__(self) -> str:
        bound = f"above {self.above}" if self.above is not None else f"below {self.below}"
        return f"{self.metric} {bound} over {counted(self.window, 'step')}"
