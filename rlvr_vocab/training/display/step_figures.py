"""What of a run's rows is shown while it trains: the last value of each figure, and how much time is left."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

# The first so many steps count alike in what a step takes; after that the newest ones count for more, as completions
# grow and shrink.
_STEPS_REMEMBERED = 50


class Figure(NamedTuple):
    """Its name on the screen, the metric behind it, and how it is written."""

    name: str
    metric: str
    form: str


# What a person wants to see of a step, in this order.
FIGURES = (
    Figure("reward", "reward", "{:.2f}"),
    Figure("spread in groups", "groups/reward_std", "{:.2f}"),
    Figure("accuracy", "rewards/accuracy/mean", "{:.2f}"),
    Figure("held out", "eval/accuracy", "{:.1%}"),
    Figure("in format", "eval/format", "{:.0%}"),
    Figure("length", "completions/mean_length", "{:.0f}"),
    Figure("cut off", "completions/clipped_ratio", "{:.0%}"),
    Figure("reasoning tokens", "thinking/reasoning_share", "{:.0%}"),
    Figure("kl", "kl", "{:.3f}"),
    Figure("entropy", "entropy", "{:.2f}"),
)


class LastFigures:
    """The last value of each figure. One that is not of the newest step is shown with its own."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, str]] = {}
        self._brought: dict[str, str] = {}
        self._newest = 0

    def take(self, row: Mapping[str, Any]) -> None:
        self._newest = row["step"]
        values = {figure: row.get(figure.metric) for figure in FIGURES}
        self._brought = {
            figure.name: figure.form.format(float(value)) for figure, value in values.items() if value is not None
        }
        self._seen.update({name: (row["step"], value) for name, value in self._brought.items()})

    def shown(self) -> dict[str, str]:
        """Those that there are, in their order, by name."""
        found = {figure.name: self._seen[figure.name] for figure in FIGURES if figure.name in self._seen}
        return {
            name: value if step == self._newest else f"{value} (step {step})" for name, (step, value) in found.items()
        }

    def of_newest(self) -> dict[str, str]:
        """Those that the last row has brought."""
        return dict(self._brought)


class TimeLeft:
    """How long the steps that are still to be taken will take."""

    def __init__(self, step: int) -> None:
        """
        Args:
            step: the last one that was taken before; in a run that is resumed others went before.
        """
        self._step, self._at = step, time.monotonic()
        self._counted, self._seconds_per_step = 0, 0.0

    def take(self, step: int) -> None:
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
