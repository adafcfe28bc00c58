"""The display of a run that trains: a few steady lines on a terminal, one plain line per logged step elsewhere."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO, cast

from rich.columns import Columns
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.file_proxy import FileProxy
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rlvr_vocab.errors import stop_signals
from rlvr_vocab.terminal import can_redraw, clock

_SHOW_CURSOR = b"\x1b[?25h\r\n"
_NAME = 18  # cells of the longest name
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
    """The display of a training, while the block runs; on a terminal other output of the block appears above it."""
    display = LiveDisplay(console, title, redraws=can_redraw(console))
    if not can_redraw(console):
        yield display
        return
    live = Live(display, console=console, refresh_per_second=2, redirect_stdout=False, redirect_stderr=False)
    at_once, stop_signals.at_once = stop_signals.at_once, lambda: _show_cursor(console)
    try:  # a signal may come while it starts, when `with live` would not end it
        live.start(refresh=True)
        with redirecting_output(console):
            yield display
    finally:
        live.stop()
        stop_signals.at_once = at_once


def _show_cursor(console: Console) -> None:
    os.write(console.file.fileno(), _SHOW_CURSOR)


class LiveDisplay:
    """The newest figures of a training.

    Args:
        redraws: they are drawn twice a second, by Rich's thread; else each logged row is printed as a plain line.
    """

    def __init__(self, console: Console, title: str, *, redraws: bool) -> None:
        self._console, self._title, self._redraws = console, title, redraws
        self._latest: dict[str, tuple[int, str]] = {}
        self._row_step = 0
        self._finding: str | None = None
        self.begins(0, 0)

    def begins(self, step: int, steps: int) -> None:
        """The training begins after `step`; not 0 in a run that is resumed."""
        self._first = self._step = step
        self._steps = steps
        self._began = self._at = time.monotonic()

    def row(self, row: Mapping[str, Any], step: int, steps: int) -> None:
        """Show a logged row; `step` of `steps` counts within the stage."""
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
        self._finding = title
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

    def _count(self) -> str:
        left = self.seconds_left()
        return f"{self._step}/{self._steps}" + ("" if left is None else f"  left {clock(left)}")

    def _print(self, line: str) -> None:
        if not self._redraws:
            encoding = self._console.encoding  # a log file may have no bytes for a character
            line = line.encode(encoding, "backslashreplace").decode(encoding)
            self._console.print(line, markup=False, soft_wrap=True)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # A print above may have asked for lines that are not wrapped.
        yield from console.render(self._lines(console, options.max_width), options.update(no_wrap=None, overflow=None))

    def _lines(self, console: Console, width: int) -> Group:
        head = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=max(self._steps, 1), completed=self._step, width=max(1, min(40, width // 3)))
        head.add_row(Text(self._title, style="bold"), bar, self._count())
        cells = [
            Text.assemble((f"{name:<{_NAME}}", "dim"), (value, "cyan"), no_wrap=True, overflow="ellipsis")
            for name, value in self.values().items()
        ]
        found = ("none so far", "dim") if self._finding is None else (self._finding, "yellow")
        lines: list[Any] = [head]
        if stop_signals.reason is not None:
            notice = f"{stop_signals.reason}: stopping after this step; a second signal ends at once"
            lines.append(Text(notice, style="yellow"))
        lines += [Columns(cells, equal=True, padding=(0, 2)), Text.assemble((f"{'finding':<{_NAME}}", "dim"), found)]
        return Group(*lines)


class OutputAboveDisplay(FileProxy):
    """Rich's stream above a live display, safe for unfinished lines and forked processes.

    Rich reads an unfinished line that is flushed as markup, and in a forked process it waits for a lock for ever.
    """

    def __init__(self, console: Console, stream: TextIO) -> None:
        super().__init__(console, stream)
        self._process, self._unfinished = os.getpid(), False

    def write(self, text: str) -> int:
        if os.getpid() != self._process:
            return self.rich_proxied_file.write(text)
        self._unfinished = not text.endswith("\n") if text else self._unfinished
        super().write(text.replace("\r\n", "\n"))
        return len(text)

    def flush(self) -> None:
        """A line that has not ended waits for its end."""
        if os.getpid() != self._process:
            self.rich_proxied_file.flush()

    def end(self) -> None:
        """Show a line that never ended."""
        if self._unfinished:
            self.write("\n")


@contextmanager
def redirecting_output(console: Console) -> Iterator[None]:
    """Inside the block stdout and stderr, if they are terminals, appear above the display.

    That includes handlers of `logging` that hold one of them, and excludes output past Python, of a C library.
    """
    stdout, stderr = sys.stdout, sys.stderr
    redirects = {id(stream): OutputAboveDisplay(console, stream) for stream in (stdout, stderr) if stream.isatty()}
    held = [(handler, handler.stream) for handler in _stream_handlers() if id(handler.stream) in redirects]
    try:
        sys.stdout, sys.stderr = (cast(TextIO, redirects.get(id(stream), stream)) for stream in (stdout, stderr))
        for handler, stream in held:
            handler.setStream(redirects[id(stream)])
        yield
    finally:
        for handler, stream in held:
            handler.setStream(stream)
        sys.stdout, sys.stderr = stdout, stderr
        for each in redirects.values():
            each.end()


def _stream_handlers() -> list[logging.StreamHandler[Any]]:
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    handlers = [handler for logger in loggers if isinstance(logger, logging.Logger) for handler in logger.handlers]
    # That of last resort has no stream of its own: it looks up sys.stderr each time.
    return [each for each in handlers if isinstance(each, logging.StreamHandler) and "stream" in vars(each)]
