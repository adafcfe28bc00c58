"""The display of a run that trains: a few steady lines on a terminal, one plain line per logged step elsewhere."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderResult
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType, Segment
from rich.text import Text

from rlvr_vocab.progress import can_redraw, clock
from rlvr_vocab.stop_signals import stop_signals
from rlvr_vocab.training.display.screen import Frame, lines_of, writing_above
from rlvr_vocab.training.display.step_figures import LastFigures, TimeLeft

_DRAWN_PER_SECOND = 2
_SHOW_CURSOR = b"\x1b[?25h\r\n"
_OF_A_STEP = "loss"


class LiveDisplay(Protocol):
    """What shows how a training goes on; it keeps the last of everything, and no history."""

    def begins(self, step: int, steps: int) -> None:
        """The training begins after `step`, in a run that is resumed not 0."""

    def row(self, row: Mapping[str, Any], step: int, steps: int) -> None:
        """A row was logged at a step of the stage."""

    def finding(self, words: str, evidence: str) -> None:
        """Something is wrong with the run."""

    def completion(self, text: Text) -> None:
        """A completion, control characters escaped, with a word on where it is from."""


@contextmanager
def live_display(console: Console, title: str) -> Iterator[LiveDisplay]:
    """The display that suits the console, as long as the block runs; what the block writes otherwise goes above it."""
    if not can_redraw(console):
        yield PlainLines(console, title)
        return
    display = TerminalDisplay(console, title)
    live = _Steady(display, console)
    at_once, stop_signals.at_once = stop_signals.at_once, lambda: _give_the_cursor_back(console)
    try:  # a signal may come while it starts, when `with live` would not end it
        live.start(refresh=True)
        with writing_above(console):
            yield display
    finally:
        live.stop()
        stop_signals.at_once = at_once


def _give_the_cursor_back(console: Console) -> None:
    os.write(console.file.fileno(), _SHOW_CURSOR)


class PlainLines:
    """For a file, a pipe, a terminal that cannot move its cursor: whole lines."""

    def __init__(self, console: Console, title: str) -> None:
        self._console, self._title = console, title
        self._figures, self._time = LastFigures(), TimeLeft(0)

    def begins(self, step: int, steps: int) -> None:
        self._time = TimeLeft(step)

    def row(self, row: Mapping[str, Any], step: int, steps: int) -> None:
        self._figures.take(row)
        self._time.take(step)
        left = self._time.seconds(steps)
        shown = self._figures.shown() if _OF_A_STEP in row else self._figures.of_newest()
        words = [f"{self._title} {step}/{steps}", *(f"{name} {value}" for name, value in shown.items())]
        self._print("  ".join(words if left is None else [*words, f"left {clock(left)}"]))

    def finding(self, words: str, evidence: str) -> None:
        self._print(f"finding: {words}: {evidence}")

    def completion(self, text: Text) -> None:
        self._print(text.plain)

    def _print(self, line: str) -> None:
        # A completion may hold what the encoding of a log file has no bytes for.
        encoding = self._console.encoding
        line = line.encode(encoding, "backslashreplace").decode(encoding)
        self._console.print(line, markup=False, soft_wrap=True)


class TerminalDisplay:
    """Lines that stay where they are; drawn twice a second, by a thread of its own."""

    def __init__(self, console: Console, title: str) -> None:
        self._console = console
        self._frame = Frame(title)
        self._figures, self._time = LastFigures(), TimeLeft(0)
        self._drawn: list[int] = []

    def begins(self, step: int, steps: int) -> None:
        self._time = TimeLeft(step)
        self._frame = replace(self._frame, step=step, steps=steps)

    def row(self, row: Mapping[str, Any], step: int, steps: int) -> None:
        self._figures.take(row)
        self._time.take(step)
        self._frame = replace(self._frame, step=step, steps=steps, figures=self._figures.shown())

    def finding(self, words: str, evidence: str) -> None:
        self._frame = replace(self._frame, finding=words)

    def completion(self, text: Text) -> None:
        self._frame = replace(self._frame, completion=text)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        frame = replace(self._frame, seconds_left=self._time.seconds(self._frame.steps), notice=_notice())
        lines = lines_of(frame, _columns(console) - 1, console)[: max(1, options.size.height - 1)]
        self._drawn = [line.cell_len for line in lines]
        for line in lines:
            # Whoever prints above may have asked for lines that are not to be wrapped.
            yield from line.render(console)
            yield Segment.line()

    def rows_broken_off(self) -> int:
        """Rows that the drawn lines take beyond their number, since the terminal has become narrower."""
        columns = _columns(self._console)
        return sum(max(0, math.ceil(cells / columns) - 1) for cells in self._drawn)


def _columns(console: Console) -> int:
    """What the terminal has; an exported `COLUMNS`, which Rich believes, does not follow a resize."""
    return max(2, min(console.width, os.get_terminal_size(console.file.fileno()).columns or console.width))


def _notice() -> str | None:
    told = stop_signals.reason
    return None if told is None else f"{told}: stopping after this step; a second signal ends at once"


class _Steady(Live):
    """Rich's display, which goes up over as many rows as there were lines: too few where a terminal has broken them."""

    def __init__(self, display: TerminalDisplay, console: Console) -> None:
        super().__init__(
            display,
            console=console,
            refresh_per_second=_DRAWN_PER_SECOND,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._display = display

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        up = ((ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)) * self._display.rows_broken_off()
        reset, *rest = super().process_renderables(renderables)
        return [reset, Control(*up), *rest]
