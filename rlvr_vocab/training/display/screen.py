"""What a terminal shows of a run while it trains, as lines of text; nothing is drawn here."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TextIO, cast

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from rlvr_vocab.progress import clock

_WIDEST_BAR = 40
_NAME, _CELL = 18, 37  # the longest name, and beside it the longest value, such as `45.0% (step 12000)`
_LINES_OF_A_COMPLETION = 3


@dataclass(frozen=True)
class Frame:
    """One state of the display.

    Attributes:
        figures: their values by their names, as they are to be shown.
        finding: the last one, in a line.
        completion: one of them, with a word on where it is from.
        notice: what the run is about to do, such as to stop.
    """

    title: str
    step: int = 0
    steps: int = 0
    seconds_left: float | None = None
    figures: Mapping[str, str] = field(default_factory=dict)
    finding: str | None = None
    completion: Text | None = None
    notice: str | None = None


def lines_of(frame: Frame, width: int, console: Console) -> list[Text]:
    """The lines of a frame, none wider than `width` cells; the most important ones first."""
    lines = [_headline(frame, width)]
    if frame.notice is not None:
        lines.append(Text(frame.notice, style="yellow"))
    lines += _grid(frame.figures, width)
    found = ("none so far", "dim") if frame.finding is None else (frame.finding, "yellow")
    lines.append(Text.assemble((f"{'finding':<{_NAME}}" if width >= _CELL else "finding: ", "dim"), found))
    if frame.completion is not None:
        lines += _clipped(frame.completion, width, console)
    for line in lines:
        line.truncate(width, overflow="ellipsis")
        line.rstrip()
    return lines


def _headline(frame: Frame, width: int) -> Text:
    left = "" if frame.seconds_left is None else f"  left {clock(frame.seconds_left)}"
    counted = f"{frame.step}/{frame.steps}{left}"
    room = min(_WIDEST_BAR, width - len(frame.title) - len(counted) - 2)
    if room < 3:
        return Text(f"{frame.title} {counted}")
    done = int(room * min(1.0, frame.step / max(frame.steps, 1)))
    bar = ("━" * done, "magenta"), ("─" * (room - done), "bright_black")
    return Text.assemble((frame.title, "bold"), " ", *bar, " ", counted)


def _grid(figures: Mapping[str, str], width: int) -> Iterator[Text]:
    columns = width // _CELL
    if not columns:  # the value first: a name can be guessed from its beginning
        yield from (Text.assemble((value, "cyan"), (f" {name}", "dim")) for name, value in figures.items())
        return
    cells = list(figures.items())
    for first in range(0, len(cells), columns):
        line = Text()
        for name, value in cells[first : first + columns]:
            line.append(f"{name:<{_NAME}}", style="dim").append(f"{value:<{_CELL - _NAME}}", style="cyan")
        yield line


def _clipped(completion: Text, width: int, console: Console) -> list[Text]:
    """A few lines; what has no room is left out in the middle, as the answer stands at the end."""
    room = _LINES_OF_A_COMPLETION * width
    if completion.cell_len > room:
        begin = completion.copy()
        begin.truncate(room - room // 3 - 3)
        completion = begin.append(" … ", style="dim").append_text(_end_of(completion, room // 3))
    lines = list(completion.wrap(console, width, overflow="fold"))
    # Words that are not broken may have taken a line more, or on a few columns some.
    return lines if len(lines) <= _LINES_OF_A_COMPLETION else [*lines[:_LINES_OF_A_COMPLETION], lines[-1]]


def _end_of(text: Text, cells: int) -> Text:
    start = len(text)
    while start and cell_len(text.plain[start - 1]) <= cells:
        start -= 1
        cells -= cell_len(text.plain[start])
    return text[start:]


class AboveTheDisplay:
    r"""Stands in for a stream. Colours stay, other control sequences are left out, `\r` begins a line again.

    Rich has such a stream too, which reads `[/b]` in an unfinished line as markup and raises, and which in a forked
    process waits for a lock that nobody there gives back.
    """

    def __init__(self, console: Console, stream: TextIO) -> None:
        self._console, self._stream = console, stream
        self._pending = ""
        self._lock = threading.RLock()
        self._process = os.getpid()

    @property
    def rich_proxied_file(self) -> TextIO:
        """Where a Rich console that finds this in the place of its stream is to write."""
        return self._stream

    def write(self, text: str) -> int:
        if os.getpid() != self._process:
            return self._stream.write(text)
        with self._lock:
            *lines, rest = (self._pending + text).split("\n")
            self._pending = rest.rsplit("\r", 1)[-1]
            for line in lines:
                self._show(line)
        return len(text)

    def flush(self) -> None:
        """A line that has not ended waits for its end."""
        if os.getpid() != self._process:
            self._stream.flush()

    def end(self) -> None:
        """Show what is left of a line that never ended."""
        with self._lock:
            if self._pending:
                self._show(self._pending)
            self._pending = ""

    def _show(self, line: str) -> None:
        self._console.print(Text.from_ansi(line.rstrip("\r")), soft_wrap=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def writing_above(console: Console) -> Iterator[None]:
    """Inside the block standard output and errors, as far as they reach a terminal, appear above the display.

    That includes handlers of `logging` that took hold of a stream before. What is written past Python, by a library
    in C for instance, is not seen here.
    """
    stdout, stderr = sys.stdout, sys.stderr
    above = {id(stream): AboveTheDisplay(console, stream) for stream in (stdout, stderr) if stream.isatty()}
    held = [(handler, handler.stream) for handler in _stream_handlers() if id(handler.stream) in above]
    try:
        sys.stdout, sys.stderr = (cast(TextIO, above.get(id(stream), stream)) for stream in (stdout, stderr))
        for handler, stream in held:
            handler.setStream(above[id(stream)])
        yield
    finally:
        for handler, stream in held:
            handler.setStream(stream)
        for each in above.values():
            each.end()
        sys.stdout, sys.stderr = stdout, stderr


def _stream_handlers() -> list[logging.StreamHandler[Any]]:
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    handlers = [handler for logger in loggers if isinstance(logger, logging.Logger) for handler in logger.handlers]
    # That of last resort has no stream of its own: it looks up sys.stderr each time.
    return [each for each in handlers if isinstance(each, logging.StreamHandler) and "stream" in vars(each)]
