"""The console of a command: colours and progress bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from rlvr_vocab.errors import READER_GONE


class _OutputWithoutEnd(io.FileIO):
    """A standard stream that drops its output, or exits, once its reader, `head` or a terminal, has ended."""

    exits = False

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())  # Python writes its buffer when it ends
            if self.exits:
                raise SystemExit(READER_GONE) from None
            return super().write(data)


def open_closed_streams() -> None:
    """Send output to /dev/null, and to no other file, where the process began with a closed stream (`>&-`)."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
            for each in (name, f"__{name}__"):
                setattr(sys, each, os.fdopen(descriptor, "w" if descriptor else "r", encoding="utf-8", closefd=False))


def outlive_reader(name: Literal["stdout", "stderr"], *, exits: bool = False) -> None:
    """Drop what is written to a stream after its reader has ended, or exit; a stream that a test has replaced stays."""
    own = getattr(sys, f"__{name}__")
    if getattr(sys, name) is own:
        own.flush()
        output = _OutputWithoutEnd(own.fileno(), "w", closefd=False)
        output.exits = exits
        errors = "backslashreplace" if own.errors == "strict" else own.errors  # a log's encoding may lack characters
        stream = io.TextIOWrapper(io.BufferedWriter(output), own.encoding, errors, line_buffering=own.line_buffering)
        setattr(sys, name, stream)


def make_console(*, quiet: bool = False) -> Console:
    """A console that wraps lines on a terminal only."""
    console = Console(quiet=quiet, highlight=False)
    has_an_edge = console.is_terminal and not console.is_dumb_terminal
    return console if has_an_edge else Console(quiet=quiet, highlight=False, width=10_000)


def shows_colours(console: Console) -> bool:
    """Whether text there can have colours."""
    return console.is_terminal and console.color_system is not None and not console.no_color


class Alarm(str):
    """A line of a section that calls for action."""

    __slots__ = ()


def print_section(console: Console, title: str, lines: Iterable[str], style: str = "bold cyan") -> None:
    """A title, and below it indented lines, alarms in yellow."""
    console.print(f"\n{title}", style=style, markup=False)
    for line in lines:
        text = Text(line, style="yellow" if isinstance(line, Alarm) else "")
        console.print(Padding(text, (0, 0, 0, 2), expand=False))


def print_table(console: Console, columns: Sequence[str], rows: Iterable[Sequence[str]], marked: str = "") -> None:
    """A table without lines, its first column left and the others right; the row named `marked` is bold."""
    table = Table(box=None, pad_edge=False)
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in rows:
        # Cells are no markup: a value of a configuration may look like it.
        table.add_row(*map(Text, row), style="bold" if row[0] == marked != "" else "")
    console.print(table)


# TRL prints every row that no reward scores. A reward may not apply to a row, and the guard counts those that fail.
_NO_SCORE = "All reward functions returned None for the following kwargs"


def quiet_libraries() -> None:
    """Hide messages of libraries that are not about the run; `TRANSFORMERS_VERBOSITY` shows those of Transformers."""
    import datasets
    from transformers.utils import logging as transformers_logging

    if "TRANSFORMERS_VERBOSITY" not in os.environ:
        transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    datasets.disable_progress_bars()
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    warnings.filterwarnings("ignore", message=".*pin_memory.*")
    warnings.filterwarnings("ignore", message="You are using 'environment_factory'")
    warnings.filterwarnings("ignore", message=".use_liger_kernel=True. is deprecated")  # of TRL 2, not of this one
    warnings.filterwarnings("ignore", message="Paged optimizers are not supported on CPU")  # a warning of ours says it
    logging.getLogger("trl.trainer.grpo_trainer").addFilter(lambda record: _NO_SCORE not in record.getMessage())


# Off a terminal: at most one line in so many seconds, and always the last one.
_SECONDS_BETWEEN_LINES = 5.0


def can_redraw(console: Console) -> bool:
    """Whether output can be drawn over: not in a file or a pipe, whatever `FORCE_COLOR` says of colours."""
    return console.is_interactive and console.file.isatty() and not console.quiet


def clock(seconds: float) -> str:
    """A duration as people read it.

    >>> clock(61.9), clock(3_600)
    ('1:01', '1:00:00')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class ProgressBar:
    """The progress of one piece of work: `update(done, figures={"reward": "0.41"})`."""

    def __init__(self, console: Console, title: str, total: int, bar: Progress | None) -> None:
        self._console, self._title, self._total, self._bar = console, title, total, bar
        self._task: TaskID | None = bar.add_task(title, total=total, figures="") if bar else None
        self._last_line = (-1, float("-inf"))
        self._first: tuple[int, float] | None = None  # an evaluation that goes on does not begin at 0
        self._figures = ""

    def update(self, done: int, total: int | None = None, *, figures: Mapping[str, str] | None = None) -> None:
        self._total = total or self._total
        self._figures = "  ".join(f"{name} {value}" for name, value in (figures or {}).items()) or self._figures
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=self._total, figures=self._figures)
            return
        now, (line_done, line_time) = time.monotonic(), self._last_line
        first, began = self._first = self._first or (done, now)
        if done > line_done and (now - line_time >= _SECONDS_BETWEEN_LINES or done >= self._total):
            self._last_line = done, now
            seconds_left = (now - began) / max(done - first, 1) * (self._total - done)
            left = f"left {clock(seconds_left)}" if first < done < self._total else ""
            parts = (f"{self._title} {done}/{self._total}", self._figures, left)
            self._console.print("  ".join(filter(None, parts)), markup=False)


@contextmanager
def progress_bar(console: Console, title: str, total: int) -> Iterator[ProgressBar]:
    """Show the progress of the block."""
    if not can_redraw(console):
        yield ProgressBar(console, title, total, None)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("[cyan]{task.fields[figures]}"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console) as bar:
        yield ProgressBar(console, title, total, bar)
