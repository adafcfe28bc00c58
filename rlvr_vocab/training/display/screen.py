"""What a terminal shows of a run while it trains, as lines of text; nothing is drawn here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rich.console import Console
from rich.text import Text

from rlvr_vocab.progress import clock

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
