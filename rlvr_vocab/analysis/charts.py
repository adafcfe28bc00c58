"""Charts by matplotlib, as SVG for a page or as files: the same data gives the same text; nothing is loaded.

On a page axes and words take the colour of the text around them, so that one picture serves light, dark and paper.
Names from data are drawn as they are: never as mathematics or markup.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from rlvr_vocab.files import atomic_write
from rlvr_vocab.text import short_text

INK = "#24292e"  # becomes the colour of the text around the picture
# `text.parse_math`: a reward may be called a_b$x$. `hashsalt`: else ids are drawn anew each time.
# `path.simplify_threshold`: a line of 50,000 points takes 26 kB, with its peaks.
RC: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "rlvr-vocab",
    "path.simplify_threshold": 1.0,
    "text.parse_math": False,
    "axes.formatter.use_mathtext": False,
    "font.family": ["DejaVu Sans"],
    "font.size": 8.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.alpha": 0.13,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "grid.color"), INK),
    **dict.fromkeys(("xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "none"),
}
# Distinct with every common colour blindness, at least 3:1 against white and against the dark page; line styles tell
# lines apart where there is no colour.
_COLOURS = ("#2b7bc8", "#d4680b", "#0d9272", "#b85c9e", "#7d7f86", "#a8770a")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1)), (0, (8, 2)))

_SMOOTHED_FROM, _SMOOTHED_OVER = 40, 25
_DOTS_UP_TO = 24
_LONGEST_NAME = 34


@dataclass(frozen=True)
class Chart:
    """A figure with the words around it; `description` is for a reader who cannot see it."""

    title: str
    figure: Figure
    description: str
    note: str = ""

    @property
    @rc_context(RC)
    def svg(self) -> Markup:
        """The figure as an `<svg>` element of a page."""
        _, _, svg = _drawn(self.figure, "svg").decode().partition("<svg ")
        # Ids that nothing refers to are those of every other picture, too.
        svg = re.sub(r'<metadata>.*?</metadata>| id="[a-z0-9.]+_\d+"', "", svg, flags=re.DOTALL)
        label = short_text(f"{self.title}. {self.description}", 9_999)
        head = Markup('<svg class="chart" role="img" aria-label="{}" ').format(label)
        return head + Markup(svg.replace(INK, "currentColor"))


# In a file, words are outlines, since a reader may lack the font, and the ground is white on a dark page too.
@rc_context({**RC, "svg.fonttype": "path", "pdf.fonttype": 42, "savefig.facecolor": "white"})
def save_charts(charts: Iterable[Chart], folder: Path) -> None:
    """Write each chart as an SVG and a PDF file, named by its title; UserError for a folder that cannot be written."""
    for chart in charts:
        name = re.sub(r"\W+", "_", chart.title.lower()).strip("_")
        for kind in ("svg", "pdf"):
            atomic_write(folder / f"{name}.{kind}", _drawn(chart.figure, kind), "figures")


def _drawn(figure: Figure, kind: str) -> bytes:
    written = io.BytesIO()
    with warnings.catch_warnings():
        # On a page words are set by the browser, whose fonts have more signs than the one that measures them here.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        figure.savefig(written, format=kind, metadata={"Date" if kind == "svg" else "CreationDate": None})
    return written.getvalue()


@dataclass(frozen=True)
class Line:
    """One line of a chart; `low` and `high`, a value for each step, bound a bar, or with many points a band."""

    name: str
    steps: Sequence[float]
    values: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


@dataclass(frozen=True)
class IntervalRow:
    """A difference within its interval; effects smaller than `reach` could not have been shown."""

    name: str
    value: float
    low: float
    high: float
    reach: float | None


@rc_context(RC)
def line_chart(lines: Sequence[Line], *, title: str, y_label: str, percent: bool = False, note: str = "") -> Chart:
    """Lines over steps, none empty; many points are drawn light, with their moving mean strong above."""
    shown, longest = _percent if percent else _plain, max(len(line.steps) for line in lines)
    chart, axes = _figure()
    window = max(3, longest // _SMOOTHED_OVER | 1)
    for line, colour, dashes in zip(lines, cycle(_COLOURS), cycle(_DASHES)):
        _draw(axes, line, colour, dashes, window)
    axes.set_ylabel(short_text(y_label))
    axes.set_xlabel(f"step · strong: mean of {window}" if longest >= _SMOOTHED_FROM else "step")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(shown))
    axes.margins(x=0.02)
    if len(lines) > 1 or lines[0].name != y_label:
        widest = max(len(short_text(line.name, _LONGEST_NAME)) for line in lines)
        chart.legend(loc="outside upper left", ncols=max(1, min(len(lines), 52 // (widest + 5))))
    ends = [
        f"{line.name}: {shown(line.values[0])} at step {line.steps[0]:g}, "
        f"{shown(line.values[-1])} at step {line.steps[-1]:g}"
        for line in lines
    ]
    return Chart(title, chart, "; ".join(ends), note)


@rc_context(RC)
def interval_chart(rows: Sequence[IntervalRow], *, title: str, x_label: str, description: str, note: str = "") -> Chart:
    """Each difference as a dot within its interval, the first one on top; grey: effects too small to be shown."""
    chart, axes = _figure(height=1.3 + 0.4 * len(rows))
    for at, row in enumerate(reversed(rows)):
        if row.reach is not None:
            axes.barh(at, 2 * row.reach, left=-row.reach, height=0.62, color=INK, alpha=0.1, linewidth=0)
        axes.plot([row.low, row.high], [at, at], color=_COLOURS[0], linewidth=2.2, solid_capstyle="round")
        axes.plot([row.value], [at], "o", color=_COLOURS[0], markersize=6)
    axes.axvline(0, color=INK, linewidth=0.9)
    axes.set_yticks(range(len(rows)), [short_text(row.name, _LONGEST_NAME) for row in reversed(rows)])
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.grid(False, axis="y")
    axes.grid(True, axis="x")
    axes.set_xlabel(x_label)
    return Chart(title, chart, description, note)


def _figure(height: float = 2.6) -> tuple[Figure, Axes]:
    drawn = Figure(figsize=(4.2, height), layout="constrained")
    axes = drawn.add_subplot()
    axes.set_axisbelow(True)
    axes.grid(True, axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(6))  # more would run into each other where they have three decimals
    return drawn, axes


def _draw(axes: Axes, line: Line, colour: str, dashes: Any, window: int) -> None:
    """Draw the line; many points light, below their mean over `window` of them."""
    steps, values = np.asarray(line.steps, float), np.asarray(line.values, float)
    dots, name = "o" if len(values) <= _DOTS_UP_TO else "", short_text(line.name, _LONGEST_NAME)
    smoothed = (lambda each: _moving_mean(each, window)) if len(values) >= _SMOOTHED_FROM else np.asarray
    if line.low is not None and line.high is not None:
        ends = smoothed(np.asarray(line.low, float)), smoothed(np.asarray(line.high, float))
        wide = ends[0] < ends[1]
        if wide.sum() <= _DOTS_UP_TO:
            reach = np.abs(np.asarray(ends) - values)[:, wide]
            axes.errorbar(steps[wide], values[wide], yerr=reach, fmt="none", ecolor=colour, elinewidth=1, capsize=2.5)
        else:
            axes.fill_between(steps, *ends, color=colour, alpha=0.16, linewidth=0)
    elif len(values) >= _SMOOTHED_FROM:
        axes.plot(steps, values, color=colour, linewidth=0.7, alpha=0.38)
    values = smoothed(values)
    axes.plot(steps, values, label=name, color=colour, linestyle=dashes, linewidth=1.6, marker=dots, markersize=2.8)


def _moving_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Centred; towards the ends over fewer values."""
    sums, counts = (np.convolve(each, np.ones(window), "same") for each in (values, np.ones(len(values))))
    return sums / counts


def _percent(value: float, _: object = None) -> str:
    return f"{100 * value:.3g} %"


def _plain(value: float, _: object = None) -> str:
    return (f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}").replace("-", "−")
