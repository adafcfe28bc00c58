"""The metrics that a display shows, each with its latest value, and the time left."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

# The first so many steps count alike in what a step takes; after that the newest ones count for more, as completions
# grow and shrink.
_STEPS_REMEMBERED = 50


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
    DisplayedMetric("held out", "eval/accuracy", "{:.1%}"),
    DisplayedMetric("in format", "eval/format", "{:.0%}"),
    DisplayedMetric("length", "completions/mean_length", "{:.0f}"),
    DisplayedMetric("cut off", "completions/clipped_ratio", "{:.0%}"),
    DisplayedMetric("reasoning tokens", "thinking/reasoning_share", "{:.0%}"),
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
    """How long the steps that are still to be taken will take."""

    def __init__(self, step: int) -> None:
        """
        Args:
            step: the last one that was taken before; in a run that is resumed others went before.
        """
        self._step, self._at = step, time.monotonic()
        self._counted, self._seconds_per_step = 0, 0.0

    def update(self, step: int) -> None:
        steps, now = step - self._step, time.monotonic()
        if steps <= 0:
            return
        self._counted = min(self._counted + steps, max(_STEPS_REMEMBERED, steps))
        self._seconds_per_step += ((now - self._at) / steps - self._seconds_per_step) * steps / self._counted
        self._step, self._at = step, now

    def seconds(self, steps: int) -> float | None:
        """Until the last of `steps`; None before the first one is over, and after the last."""
        if not self._counted or self._step >= steps:
            return None
        return max(0.0, self._seconds_per_step * (steps - self._step) - (time.monotonic() - self._at))
