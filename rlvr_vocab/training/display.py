"""The display of a run that trains: a few steady lines on a terminal, one plain line per logged step elsewhere."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TextIO, cast

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from rlvr_vocab.record.metrics import PHASES
from rlvr_vocab.signals import stop_signals
from rlvr_vocab.terminal import can_redraw, clock

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


class DisplayedMetric(NamedTuple):
    """A name on the screen, the key in a row, and the format of the value, or what makes words of the row."""

    name: str
    key: str
    form: str | Callable[[Mapping[str, Any]], str]

    def shown(self, row: Mapping[str, Any]) -> str:
        return self.form.format(float(row[self.key])) if isinstance(self.form, str) else self.form(row)


def longest_phase(row: Mapping[str, Any]) -> str:
    """The phase of a step that takes most of it, and which part.

    >>> longest_phase({"step_time": 4.0, "time/generation": 3.0, "time/forward": 1.0})
    'generation 75%'
    """
    phase = max(PHASES, key=lambda name: row.get(name, 0.0))
    return f"{phase.removeprefix('time/')} {row.get(phase, 0.0) / row['step_time']:.0%}"


# What a person wants to see of a step, in this order.
DISPLAYED = (
    DisplayedMetric("reward", "reward", "{:.2f}"),
    DisplayedMetric("spread in groups", "groups/reward_std", "{:.2f}"),
    DisplayedMetric("accuracy", "rewards/accuracy/mean", "{:.2f}"),
    DisplayedMetric("held out", "eval/reward", "{:.2f}"),
    DisplayedMetric("held out", "eval/accuracy", "{:.1%}"),  # in its place where answers are right or wrong
    DisplayedMetric("in format", "eval/format", "{:.0%}"),
    DisplayedMetric("length", "completions/mean_length", "{:.0f}"),
    DisplayedMetric("cut off", "completions/clipped_ratio", "{:.0%}"),
    DisplayedMetric("reasoning tokens", "thinking/reasoning_share", "{:.0%}"),
    DisplayedMetric("thrown away", "dynamic/completions_thrown_away", "{:.0f}"),
    DisplayedMetric("kl", "kl", "{:.3f}"),
    DisplayedMetric("entropy", "entropy", "{:.2f}"),
    DisplayedMetric("seconds a step", "step_time", "{:.3g}"),
    DisplayedMetric("longest phase", "time/other", longest_phase),  # which every step has that was timed
    DisplayedMetric("sampled tokens/s", "time/sampled_tokens_per_second", "{:.0f}"),
    DisplayedMetric("trained tokens/s", "time/trained_tokens_per_second", "{:.0f}"),
)


class LatestMetrics:
    """The latest value of each displayed metric, formatted; an older one names its step."""

    def __init__(self) -> None:
        self._latest: dict[str, tuple[int, str]] = {}
        self._step = 0

    def update(self, row: Mapping[str, Any]) -> dict[str, str]:
        """Take over a row; the formatted values that it brings, by name."""
        self._step = row["step"]
        found = [each for each in DISPLAYED if row.get(each.key) is not None]
        values = {each.name: each.shown(row) for each in found}
        self._latest.update({name: (self._step, value) for name, value in values.items()})
        return values

    def values(self) -> dict[str, str]:
        """All that there are, by name, in the order of `DISPLAYED`."""
        found = [(each.name, *self._latest[each.name]) for each in DISPLAYED if each.name in self._latest]
        return {name: value if step == self._step else f"{value} (step {step})" for name, step, value in found}


class TimeLeft:
    """How long the steps that are still to be taken will take: each as long as one took until now, on average."""

    def __init__(self, step: int) -> None:
        """
        Args:
            step: the last one that was taken before; in a run that is resumed others went before.
        """
        self._first = self._step = step
        self._began = self._at = time.monotonic()

    def update(self, step: int) -> None:
        if step > self._step:
            self._step, self._at = step, time.monotonic()

    def seconds(self, steps: int) -> float | None:
        """Until the last of `steps`; None before the first one is over, and after the last."""
        if not self._first < self._step < steps:
            return None
        seconds_per_step = (self._at - self._began) / (self._step - self._first)
        return max(0.0, seconds_per_step * (steps - self._step) - (time.monotonic() - self._at))


_WIDEST_BAR = 40
_NAME, _CELL = 18, 37  # the longest name, and beside it the longest value, such as `45.0% (step 12000)`


@dataclass(frozen=True)
class DisplayState:
    """One state of the display.

    Attributes:
        metrics: formatted values by the names on the screen.
        finding: the last one, in a line.
        completion: one of them, with a word on where it is from.
        notice: what the run is about to do, such as to stop.
    """

    title: str
    step: int = 0
    steps: int = 0
    seconds_left: float | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)
    finding: str | None = None
    completion: Text | None = None
    notice: str | None = None


def display_lines(state: DisplayState, width: int, console: Console) -> list[Text]:
    """The lines of a state, none wider than `width` cells; the most important ones first."""
    lines = [_headline(state, width)]
    if state.notice is not None:
        lines.append(Text(state.notice, style="yellow"))
    lines += _grid(state.metrics, width)
    found = ("none so far", "dim") if state.finding is None else (state.finding, "yellow")
    lines.append(Text.assemble((f"{'finding':<{_NAME}}" if width >= _CELL else "finding: ", "dim"), found))
    if state.completion is not None:
        first, *others = state.completion.wrap(console, width, overflow="fold")
        # The answer stands at the end.
        lines += [first, *others] if len(others) < 3 else [first, others[0], Text("…", style="dim"), others[-1]]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
        line.rstrip()
    return lines


def _headline(state: DisplayState, width: int) -> Text:
    left = "" if state.seconds_left is None else f"  left {clock(state.seconds_left)}"
    counted = f"{state.step}/{state.steps}{left}"
    room = min(_WIDEST_BAR, width - len(state.title) - len(counted) - 2)
    if room < 3:
        return Text(f"{state.title} {counted}")
    done = int(room * min(1.0, state.step / max(state.steps, 1)))
    bar = ("━" * done, "magenta"), ("─" * (room - done), "bright_black")
    return Text.assemble((state.title, "bold"), " ", *bar, " ", counted)


def _grid(metrics: Mapping[str, str], width: int) -> Iterator[Text]:
    columns = width // _CELL
    if not columns:  # the value first: a name can be guessed from its beginning
        yield from (Text.assemble((value, "cyan"), (f" {name}", "dim")) for name, value in metrics.items())
        return
    cells = list(metrics.items())
    for first in range(0, len(cells), columns):
        line = Text()
        for name, value in cells[first : first + columns]:
            line.append(f"{name:<{_NAME}}", style="dim").append(f"{value:<{_CELL - _NAME}}", style="cyan")
        yield line


class LineRedirect:
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
def redirecting_output(console: Console) -> Iterator[None]:
    """Inside the block standard output and errors, as far as they reach a terminal, appear above the display.

    That includes handlers of `logging` that took hold of a stream before. What is written past Python, by a library
    in C for instance, is not seen here.
    """
    stdout, stderr = sys.stdout, sys.stderr
    redirects = {id(stream): LineRedirect(console, stream) for stream in (stdout, stderr) if stream.isatty()}
    held = [(handler, handler.stream) for handler in _stream_handlers() if id(handler.stream) in redirects]
    try:
        sys.stdout, sys.stderr = (cast(TextIO, redirects.get(id(stream), stream)) for stream in (stdout, stderr))
        for handler, stream in held:
            handler.setStream(redirects[id(stream)])
        yield
    finally:
        for handler, stream in held:
            handler.setStream(stream)
        for each in redirects.values():
            each.end()
        sys.stdout, sys.stderr = stdout, stderr


def _stream_handlers() -> list[logging.StreamHandler[Any]]:
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    handlers = [handler for logger in loggers if isinstance(logger, logging.Logger) for handler in logger.handlers]
    # That of last resort has no stream of its own: it looks up sys.stderr each time.
    return [each for each in handlers if isinstance(each, logging.StreamHandler) and "stream" in vars(each)]
