"""The display of a run that trains: a line for each logged row and, on a terminal, a bar below them."""

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

# Name on the screen, key in a row, format of the value. With title, step and time left they fit into 100 columns.
_DISPLAYED = (
    ("reward", "reward", "{:.2f}"),
    ("accuracy", "rewards/accuracy/mean", "{:.2f}"),
    ("held out", "eval/reward", "{:.2f}"),
    ("held out", "eval/accuracy", "{:.1%}"),  # replaces the reward where answers are right or wrong
    ("in format", "eval/format", "{:.0%}"),
    ("length", "completions/mean_length", "{:.0f}"),
    ("kl", "kl", "{:.3f}"),
    ("entropy", "entropy", "{:.2f}"),
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
        self._steps = steps
        values = {name: form.format(float(row[key])) for name, key, form in _DISPLAYED if row.get(key) is not None}
        figures = [f"{name} {value}" for name, value in values.items()]
        self._print("  ".join([f"{self._title} {self._step}/{self._steps}", *figures, *self._time_left()]))

    def finding(self, title: str, evidence: str) -> None:
        self._print(f"finding: {title}: {evidence}")

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
        count = "  ".join([f"{self._step}/{self._steps}", *self._time_left()])
        line.add_row(Text(self._title, style="bold"), bar, count, Text(notice, style="yellow"))
        return line

    def _time_left(self) -> list[str]:
        left = self.seconds_left()
        return [] if left is None else [f"left {clock(left)}"]

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, soft_wrap=True)
