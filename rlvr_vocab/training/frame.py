"""What a terminal shows of a run while it trains, as lines of text; nothing is drawn here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from rlvr_vocab.training.progress import clock

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
