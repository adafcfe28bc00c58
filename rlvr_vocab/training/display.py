"""The display of a run that trains: a line for each logged row, a bar on a terminal, signs of life in long steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
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
# Of a step without an end: seconds until the first sign of life, and between two lines where there is no terminal.
_QUIET, _BETWEEN_LINES = 30.0, 60.0


@contextmanager
def live_display(console: Console, title: str, phase: Callable[[], str | None] = lambda: None) -> Iterator[LiveDisplay]:
    """The display of a training, while the block runs; `phase` names what a step is at."""
    display = LiveDisplay(console, title, phase)
    if not can_redraw(console):
        ended = threading.Event()
        threading.Thread(target=display.print_signs, args=(ended,), daemon=True).start()
        try:
            yield display
        finally:
            ended.set()
        return
    # Rich's own redirection reads an unfinished line as markup, and in a forked process it waits for a lock for ever.
    with Live(
        get_renderable=display.bar, console=console, refresh_per_second=2, redirect_stdout=False, redirect_stderr=False
    ):
        console.show_cursor()  # a second signal ends the process at once, and would leave it hidden
        yield display


class LiveDisplay:
    """Prints the metrics of each logged row in a line; `bar` shows the step and the time left."""

    def __init__(self, console: Console, title: str, phase: Callable[[], str | None]) -> None:
        self._console, self._title, self._phase = console, title, phase
        self._spinner = Spinner("dots")
        self.begins(0, 0)

    def begins(self, step: int, steps: int) -> None:
        """The training begins after `step`; not 0 in a run that is resumed."""
        self._first = self._step = step
        self._steps = steps
        self._began = self._at = time.monotonic()
        self.step_begins()

    def step_begins(self) -> None:
        """A step begins; an evaluation or a checkpoint may follow it."""
        self._step_began, self._signs = time.monotonic(), 0

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
        return max(0.0, self._mean_step() * (self._steps - self._step) - (time.monotonic() - self._at))

    def _mean_step(self) -> float:
        return (self._at - self._began) / max(1, self._step - self._first)

    def stopping(self) -> str:
        """The notice after a signal, with the time left by the mean step; empty without a signal."""
        left = self._step_began + self._mean_step() - time.monotonic()
        about = f", about {left:.0f} s" if left >= 1 else ""
        notice = f"{stop_signals.reason}: stopping after this step{about}; a second signal ends at once"
        return "" if stop_signals.reason is None else notice

    def sign_of_life(self) -> str:
        """The phase of a long step, and the seconds since its beginning; else empty."""
        seconds = time.monotonic() - self._step_began
        return f"{self._phase() or 'working'}, {clock(seconds)} in this step" if seconds >= _QUIET else ""

    def print_signs(self, ended: threading.Event) -> None:
        """Print the reaction to a signal at once, and a line each minute of a long step, until `ended` is set."""
        answered = False
        while not ended.wait(0.2):
            if (notice := self.stopping()) and not answered:
                answered = True
                self._print(notice)
            elif time.monotonic() - self._step_began >= _QUIET + self._signs * _BETWEEN_LINES:
                self._signs += 1
                self._print(f"{self._title} {self._step}/{self._steps}  {self.sign_of_life()}")

    def bar(self) -> Table:
        bar, line = ProgressBar(total=max(self._steps, 1), completed=self._step, width=20), Table.grid(padding=(0, 1))
        count = "  ".join([f"{self._step}/{self._steps}", *self._time_left()])
        life = self.sign_of_life()
        self._spinner.update(text=life)
        notice = Text(self.stopping(), style="yellow")
        line.add_row(Text(self._title, style="bold"), bar, count, self._spinner if life and not notice else notice)
        return line

    def _time_left(self) -> list[str]:
        left = self.seconds_left()
        return [] if left is None else [f"left {clock(left)}"]

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, soft_wrap=True)
