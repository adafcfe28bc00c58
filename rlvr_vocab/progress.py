"""Progress of long work: a steady bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

# Not on a terminal: at most one line in so many seconds, and always the last one.
_SECONDS_BETWEEN_LINES = 5.0


def can_redraw(console: Console) -> bool:
    """Whether what was drawn can be drawn over: not in a file or a pipe, whatever `FORCE_COLOR` says of colours."""
    return console.is_interactive and console.file.isatty() and not console.quiet


def clock(seconds: float) -> str:
    """A duration as people read it.

    >>> clock(61.9), clock(3_600)
    ('1:01', '1:00:00')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class Stage:
    """One piece of long work: `update(done, reward="0.41")`."""

    def __init__(self, console: Console, title: str, total: int, bar: Progress | None) -> None:
        self._console, self._title, self._total, self._bar = console, title, total, bar
        self._task: TaskID | None = bar.add_task(title, total=total, figures="") if bar else None
        self._started = time.monotonic()
        self._first: int | None = None
        self._last_line = (-1, float("-inf"))
        self._figures = ""

    def update(self, done: int, figures: Mapping[str, str] | None = None, *, total: int | None = None) -> None:
        self._total = total or self._total
        self._first = done if self._first is None else self._first
        self._figures = "  ".join(f"{name} {value}" for name, value in (figures or {}).items()) or self._figures
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=self._total, figures=self._figures)
        else:
            self._print_line(done)

    def _print_line(self, done: int) -> None:
        line_done, line_time = self._last_line
        waited = time.monotonic() - line_time >= _SECONDS_BETWEEN_LINES
        if done > line_done and (waited or done >= self._total):
            self._last_line = done, time.monotonic()
            parts = [f"{self._title} {done}/{self._total}", self._figures, self._time_left(done)]
            self._console.print("  ".join(part for part in parts if part), markup=False)

    def _time_left(self, done: int) -> str:
        steps = done - (self._first or 0)
        if not steps or done >= self._total:
            return ""
        return f"left {clock((time.monotonic() - self._started) / steps * (self._total - done))}"


@contextmanager
def stage(console: Console, title: str, total: int) -> Iterator[Stage]:
    """Show one stage while the block runs."""
    if not can_redraw(console):
        yield Stage(console, title, total, None)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("[cyan]{task.fields[figures]}"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console) as bar:
        yield Stage(console, title, total, bar)
