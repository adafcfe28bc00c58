"""The display of a run that trains: a few steady lines on a terminal, one plain line per logged step elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from rlvr_vocab.progress import can_redraw, clock
from rlvr_vocab.stop_signals import stop_signals
from rlvr_vocab.training.display.latest_metrics import LatestMetrics, TimeLeft
from rlvr_vocab.training.display.redirect import redirecting_output
from rlvr_vocab.training.display.screen import DisplayState, display_lines

_DRAWN_PER_SECOND = 2
_SHOW_CURSOR = b"\x1b[?25h\r\n"
_OF_A_STEP = "loss"


@contextmanager
def live_display(console: Console, title: str) -> Iterator[LiveDisplay]:
    """The display that suits the console, as long as the block runs; what the block writes otherwise goes above it."""
    if not can_redraw(console):
        yield PlainLines(console, title)
        return
    display = TerminalDisplay(console, title)
    live = Live(
        display,
        console=console,
        refresh_per_second=_DRAWN_PER_SECOND,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    at_once, stop_signals.at_once = stop_signals.at_once, lambda: _give_the_cursor_back(console)
    try:  # a signal may come while it starts, when `with live` would not end it
        live.start(refresh=True)
        with redirecting_output(console):
            yield display
    finally:
        live.stop()
        stop_signals.at_once = at_once


def _give_the_cursor_back(console: Console) -> None:
    os.write(console.file.fileno(), _SHOW_CURSOR)


class PlainLines:
    """The display of a file, a pipe, a terminal that cannot move its cursor: whole lines."""

    def __init__(self, console: Console, title: str) -> None:
        self._console, self._title = console, title
        self._metrics, self._time = LatestMetrics(), TimeLeft(0)

    def begins(self, step: int, steps: int) -> None:
        """The training begins after `step`, in a run that is resumed not 0."""
        self._time = TimeLeft(step)

    def row(self, row: Mapping[str, Any], step: int, steps: int) -> None:
        own = self._metrics.update(row)
        self._time.update(step)
        left = self._time.seconds(steps)
        values = self._metrics.values() if _OF_A_STEP in row else own
        words = [f"{self._title} {step}/{steps}", *(f"{name} {value}" for name, value in values.items())]
        self._print("  ".join(words if left is None else [*words, f"left {clock(left)}"]))

    def finding(self, words: str, evidence: str) -> None:
        self._print(f"finding: {words}: {evidence}")

    def completion(self, text: Text) -> None:
        """Show a completion, control characters escaped, with a word on where it is from."""
        self._print(text.plain)

    def _print(self, line: str) -> None:
        # A completion may hold what the encoding of a log file has no bytes for.
        encoding = self._console.encoding
        line = line.encode(encoding, "backslashreplace").decode(encoding)
        self._console.print(line, markup=False, soft_wrap=True)


class TerminalDisplay:
    """Lines that stay where they are, drawn twice a second by a thread of their own, with the last of everything."""

    def __init__(self, console: Console, title: str) -> None:
        self._console = console
        self._state = DisplayState(title)
        self._metrics, self._time = LatestMetrics(), TimeLeft(0)

    def begins(self, step: int, steps: int) -> None:
        self._time = TimeLeft(step)
        self._state = replace(self._state, step=step, steps=steps)

    def row(self, row: Mapping[str, Any], step: int, steps: int) -> None:
        self._metrics.update(row)
        self._time.update(step)
        self._state = replace(self._state, step=step, steps=steps, metrics=self._metrics.values())

    def finding(self, words: str, evidence: str) -> None:
        self._state = replace(self._state, finding=words)

    def completion(self, text: Text) -> None:
        self._state = replace(self._state, completion=text)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        state = replace(self._state, seconds_left=self._time.seconds(self._state.steps), notice=_notice())
        # What the terminal has: an exported `COLUMNS`, which Rich believes, does not follow a resize.
        columns = max(2, min(console.width, os.get_terminal_size(console.file.fileno()).columns or console.width))
        for line in display_lines(state, columns - 1, console)[: max(1, options.size.height - 1)]:
            # Whoever prints above may have asked for lines that are not to be wrapped.
            yield from line.render(console)
            yield Segment.line()


LiveDisplay = PlainLines | TerminalDisplay


def _notice() -> str | None:
    told = stop_signals.reason
    return None if told is None else f"{told}: stopping after this step; a second signal ends at once"
