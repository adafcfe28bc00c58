"""The display of a run that trains: a line for each logged step and, on a terminal, a bar below them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rlvr_vocab.errors import stop_signals
from rlvr_vocab.terminal import can_redraw, clock

# Name on the screen, key in a row, format of the value; in this order.
DISPLAYED = (
    ("reward", "reward", "{:.2f}"),
    ("spread in groups", "groups/reward_std", "{:.2f}"),
    ("accuracy", "rewards/accuracy/mean", "{:.2f}"),
    ("held out", "eval/reward", "{:.2f}"),
    ("held out", "eval/accuracy", "{:.1%}"),  # replaces the reward where answers are right or wrong
    ("in format", "eval/format", "{:.0%}"),
    ("length", "completions/mean_length", "{:.0f}"),
    ("cut off", "completions/clipped_ratio", "{:.0%}"),
    ("reasoning tokens", "thinking/reasoning_share", "{:.0%}"),
    ("thrown away", "dynamic/completions_thrown_away", "{:.0f}"),
    ("kl", "kl", "{:.3f}"),
    ("entropy", "entropy", "{:.2f}"),
    ("seconds a step", "step_time", "{:.3g}"),
    ("sampled tokens/s", "time/sampled_tokens_per_second", "{:.0f}"),
    ("trained tokens/s", "time/trained_tokens_per_second", "{:.0f}"),
)


@contextmanager
def live_display(console: Console, title: str) -> Iterator[LiveDisplay]:
    """The display of a training, while the block runs."""
    display = LiveDisplay(console, title)
    if not can_redraw(console):
        yield display
        return
    # Rich's own redirection reads an unfinished line as markup, and in a forked process it waits for a lock for ever.
    with Live(
        get_renderable=display.bar, console=console, refresh_per_second=2, redirect_stdout=False, redirect_stderr=False
    ):
        console.show_cursor()  # a second signal ends the process at once, and would leave it hidden
        yield display


class LiveDisplay:
    """Prints the metrics of each logged row in a line; `bar` shows the step and the time left."""

    def __init__(self, console: Console, title: str) -> None:
        self._console, self._title = console, title
        self._latest: dict[str, tuple[int, str]] = {}
        self._row_step = 0
        self.begins(0, 0)

    def begins(self, step: int, steps: int) -> None:
        """The training begins after `step`; not 0 in a run that is resumed."""
        self._first = self._step = step
        self._steps = steps
        self._began = self._at = time.monotonic()

    def row(self, row: Mapping[str, Any], step: int, steps: int) -> None:
        """Print a logged row; `step` of `steps` counts within the stage."""
        if step > self._step:
            self._step, self._at = step, time.monotonic()
        self._steps, self._row_step = steps, row["step"]
        own = {name: form.format(float(row[key])) for name, key, form in DISPLAYED if row.get(key) is not None}
        self._latest |= {name: (self._row_step, value) for name, value in own.items()}
        values = self.values() if "loss" in row else own  # without it an evaluation, not a step
        self._print(
            "  ".join([f"{self._title} {self._count()}", *(f"{name} {value}" for name, value in values.items())])
        )

    def finding(self, title: str, evidence: str) -> None:
        self._print(f"finding: {title}: {evidence}")

    def values(self) -> dict[str, str]:
        """The latest value of each metric by name, in the order of `DISPLAYED`; an older one names its step."""
        found = {name: self._latest[name] for name, _, _ in DISPLAYED if name in self._latest}
        return {
            name: value if step == self._row_step else f"{value} (step {step})" for name, (step, value) in found.items()
        }

    def seconds_left(self) -> float | None:
        """By the mean step of this start; None before the first one is over, and after the last."""
        if not self._first < self._step < self._steps:
            return None
        seconds_per_step = (self._at - self._began) / (self._step - self._first)
        return max(0.0, seconds_per_step * (self._steps - self._step) - (time.monotonic() - self._at))

    def bar(self) -> Table:
        bar, line = ProgressBar(total=max(self._steps, 1), completed=self._step, width=20), Table.grid(padding=(0, 1))
        reason = stop_signals.reason
        notice = "" if reason is None else f"{reason}: stopping after this step; a second signal ends at once"
        line.add_row(Text(self._title, style="bold"), bar, self._count(), Text(notice, style="yellow"))
        return line

    def _count(self) -> str:
        left = self.seconds_left()
        return f"{self._step}/{self._steps}" + ("" if left is None else f"  left {clock(left)}")

    def _print(self, line: str) -> None:
        encoding = self._console.encoding  # a log file may have no bytes for a character
        line = line.encode(encoding, "backslashreplace").decode(encoding)
        self._console.print(line, markup=False, soft_wrap=True)
