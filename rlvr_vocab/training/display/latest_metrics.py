"""The metrics that a display shows, each with its latest value, and the time left."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple


class DisplayedMetric(NamedTuple):
    """A name on the screen, the key in a row, and the format of the value."""

    name: str
    key: str
    form: str


# What a person wants to see of a step, in this order.
DISPLAYED = (
    DisplayedMetric("reward", "reward", "{:.2f}"),
    DisplayedMetric("spread in groups", "groups/reward_std", "{:.2f}"),
    DisplayedMetric("accuracy", "rewards/accuracy/mean", "{:.2f}"),
    DisplayedMetric("held out", "eval/reward", "{:.2f}"),
    DisplayedMetric("held out", "eval/accuracy", "{:.1%}"),  # in its place where answers are right or wrong
    DisplayedMetric("in format", "eval/format", "{:.0%}"),
    DisplayedMetric("length", "completions/mean_length", "{:.0f}"),
    DisplayedMetric("cut off", "completions/clipped_ratio", "{:.0%}"),
    DisplayedMetric("reasoning tokens", "thinking/reasoning_share", "{:.0%}"),
    DisplayedMetric("thrown away", "dynamic/completions_thrown_away", "{:.0f}"),
    DisplayedMetric("kl", "kl", "{:.3f}"),
    DisplayedMetric("entropy", "entropy", "{:.2f}"),
)


class LatestMetrics:
    """The latest value of each displayed metric, formatted; an older one names its step."""

    def __init__(self) -> None:
        self._latest: dict[str, tuple[int, str]] = {}
        self._step = 0

    def update(self, row: Mapping[str, Any]) -> dict[str, str]:
        """Take over a row; the formatted values that it brings, by name."""
        self._step = row["step"]
        found = [each for each in DISPLAYED if row.get(each.key) is not None]
        values = {each.name: each.form.format(float(row[each.key])) for each in found}
        self._latest.update({name: (self._step, value) for name, value in values.items()})
        return values

    def values(self) -> dict[str, str]:
        """All that there are, by name, in the order of `DISPLAYED`."""
        found = [(each.name, *self._latest[each.name]) for each in DISPLAYED if each.name in self._latest]
        return {name: value if step == self._step else f"{value} (step {step})" for name, step, value in found}


class TimeLeft:
    """How long the steps that are still to be taken will take: each as long as one took until now, on average."""

    def __init__(self, step: int) -> None:
        """
        Args:
            step: the last one that was taken before; in a run that is resumed others went before.
        """
        self._first = self._step = step
        self._began = self._at = time.monotonic()

    def update(self, step: int) -> None:
        if step > self._step:
            self._step, self._at = step, time.monotonic()

    def seconds(self, steps: int) -> float | None:
        """Until the last of `steps`; None before the first one is over, and after the last."""
        if not self._first < self._step < steps:
            return None
        seconds_per_step = (self._at - self._began) / (self._step - self._first)
        return max(0.0, seconds_per_step * (steps - self._step) - (time.monotonic() - self._at))
