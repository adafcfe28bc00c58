"""The metrics that a display shows, each with its latest value, and the time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rlvr_vocab.record.metrics import PHASES


class DisplayedMetric(NamedTuple):
    """A name on the screen, the key in a row, and the format of the value, or what makes words of the row."""

    name: str
    key: str
    form: str | Callable[[Mapping[str, Any]], str]

    def shown(self, row: Mapping[str, Any]) -> str:
        return self.form.format(float(row[self.key])) if isinstance(self.form, str) else self.form(row)


def longest_phase(row: Mapping[str, Any]) -> str:
    """The phase of a step that takes most of it, and which part.

    >>> longest_phase({"step_time": 4.0, "time/generation": 3.0, "time/forward": 1.0})
    'generation 75%'
    """
    phase = max(PHASES, key=lambda name: row.get(name, 0.0))
    return f"{phase.removeprefix('time/')} {row.get(phase, 0.0) / row['step_time']:.0%}"


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
    DisplayedMetric("seconds a step", "step_time", "{:.3g}"),
    DisplayedMetric("longest phase", "time/other", longest_phase),  # which every step has that was timed
    DisplayedMetric("sampled tokens/s", "time/sampled_tokens_per_second", "{:.0f}"),
    DisplayedMetric("trained tokens/s", "time/trained_tokens_per_second", "{:.0f}"),
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
        values = {each.name: each.shown(row) for each in found}
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
