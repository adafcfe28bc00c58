"""Charts as matplotlib's own SVG for a page: the same data gives the same text, and nothing is loaded from elsewhere.

`RC` is their style sheet, and page.css the rest of it. Axes and words take the colour of the text around them, so that
one picture serves light, dark and paper. Names from data are drawn as they are: never as mathematics or markup.
"""

from __future__ import annotations

import io
import math
import re
import unicodedata
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from rlvr_vocab.text import TURNING

INK = "#24292e"  # becomes the colour of the text around the picture
# `text.parse_math`: a reward may be called a_b$x$. `hashsalt`: else ids are drawn anew each time.
RC: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "rlvr-vocab",
    "text.parse_math": False,
    "axes.formatter.use_mathtext": False,
    "font.family": ["DejaVu Sans"],
    "font.size": 8.5,
    "axes.labelsize": 8.5,
    "axes.titlesize": 9,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "legend.borderpad": 0.1,
    "legend.borderaxespad": 0.1,
    "legend.columnspacing": 1.4,
    "legend.handlelength": 2.2,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "grid.color": INK,
    "grid.alpha": 0.13,
    "grid.linewidth": 0.6,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "figure.constrained_layout.h_pad": 0.03,
    "figure.constrained_layout.w_pad": 0.03,
}

# Told apart with every common colour blindness, at least 3:1 against white and against the dark page; the line styles
# tell them apart where there is no colour at all.
palette = ("#2b7bc8", "#d4680b", "#0d9272", "#b85c9e", "#7d7f86", "#a8770a")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1)), (0, (8, 2)))

# Beyond so many points a line is drawn as the mean, the lowest and the highest value of each of so many bins.
_MOST_POINTS = 400
_SMOOTHED_FROM, _SMOOTHED_OVER = 40, 25
_ROUGH = 0.02
_DOTS_UP_TO = 24
_LONGEST_NAME = 34


@dataclass(frozen=True)
class Chart:
    """A chart with the words around it; `name` is that of its file, where it is written to one."""

    title: str
    svg: Markup
    note: str = ""
    name: str = ""


@dataclass(frozen=True)
class Line:
    """One line of a chart; `low` and `high`, a value for each step, bound a band, or bars where points are few."""

    name: str
    steps: Sequence[float]
    values: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


@dataclass(frozen=True)
class Band:
    """A range of steps that is marked, a stage for instance."""

    name: str
    start: float
    end: float


def drawable(text: str, longest: int | None = None) -> str:
    """Text from data as it can be drawn and written: what no font and no XML has stands as �, line breaks as ↵."""
    shown = "".join(map(_drawable_character, text))
    return shown if longest is None or len(shown) <= longest else f"{shown[: longest - 1]}…"


def _drawable_character(character: str) -> str:
    if character in "\n\r\t":
        return "⇥" if character == "\t" else "↵"
    refused = unicodedata.category(character) in ("Cc", "Cs", "Cn") or re.match(f"[{TURNING}]", character)
    return "�" if refused else character


def as_svg(chart: Figure, title: str, description: str = "") -> Markup:
    """The figure as an `<svg>` element, with words for a reader who cannot see it."""
    written = io.StringIO()
    with rc_context(RC), warnings.catch_warnings():
        # Words are set by the browser, whose fonts have more signs than the one that measures them here.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        FigureCanvasSVG(chart).print_svg(written, metadata={"Date": None})
    _, _, svg = written.getvalue().partition("<svg ")
    # Ids that nothing refers to are those of every other picture, too.
    svg = re.sub(r'<metadata>.*?</metadata>| id="[a-z0-9.]+_\d+"', "", svg, flags=re.DOTALL)
    svg = svg.replace(INK, "currentColor")
    words = drawable(f"{title}. {description}" if description else title)
    return Markup('<svg class="chart" role="img" aria-label="{}" ').format(words) + Markup(
        svg.replace(INK, "currentColor")
    )


def figure(width: float = 4.2, height: float = 2.6) -> tuple[Figure, Axes]:
    """An empty chart, size in inches; on a phone its words are as large as the small print around it."""
    with rc_context(RC):
        drawn = Figure(figsize=(width, height), layout="constrained")
        axes = drawn.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    axes.grid(True, axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(6))  # more would run into each other where they have three decimals
    return drawn, axes


def style_of(number: int) -> tuple[str, Any]:
    """Colour and line style of the line with that number, from 0."""
    return palette[number % len(palette)], _DASHES[number % len(_DASHES)]


@rc_context(RC)
def line_chart(
    lines: Sequence[Line],
    *,
    y_label: str,
    x_label: str = "step",
    percent: bool = False,
    title: str = "",
    bands: Sequence[Band] = (),
) -> Markup:
    """Lines over steps, or what `x_label` says, as SVG.

    Many points are drawn light, each of them, with their moving mean strong above; still more are thinned: the mean of
    each bin within the band from its lowest to its highest value. The words below the chart say which.
    """
    drawn = [line for line in map(_finite, lines) if line.steps]
    chart, axes = figure()
    longest = max(len(line.steps) for line in drawn)
    notes = [_draw(axes, line, number, max(3, longest // _SMOOTHED_OVER | 1)) for number, line in enumerate(drawn)]
    _draw_bands(axes, bands)
    _label(axes, y_label, " · ".join([x_label, *sorted({note for note in notes if note})]))
    axes.margins(x=0.02)
    axes.yaxis.set_major_formatter(FuncFormatter(_percent if percent else _plain))
    if percent:
        _limit_to_0_and_1(axes, drawn)
    if len(drawn) > 1 or drawn[0].name not in ("", y_label):
        styles = map(style_of, range(len(drawn)))
        handles = [Line2D([], [], color=colour, linestyle=dashes) for colour, dashes in styles]
        _add_legend(chart, [line.name for line in drawn], handles)
    return as_svg(chart, title or y_label, _description(drawn, percent))


@rc_context(RC)
def stacked_chart(layers: Sequence[Line], *, y_label: str, title: str = "", bands: Sequence[Band] = ()) -> Markup:
    """Layers over the same steps as SVG, the first one below; where points are many, the means of bins."""
    chart, axes = figure()
    columns = (layers[0].steps, *(layer.values for layer in layers))
    at, *heights = (_bin_means(np.asarray(column, float)) for column in columns)
    if len(at) == 1:  # an area needs two points
        at, heights = at[0] + np.array([-0.4, 0.4]), [np.repeat(height, 2) for height in heights]
    areas = axes.stackplot(at, heights, linewidth=0)
    for number, area in enumerate(areas):
        area.set(facecolor=style_of(number)[0], alpha=0.8 if number < len(palette) else 0.4)
    _draw_bands(axes, bands)
    _label(axes, y_label, "step")
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))
    axes.margins(x=0)
    axes.set_ylim(bottom=0)
    _add_legend(chart, [layer.name for layer in layers], areas)
    return as_svg(chart, title or y_label, _description(layers, percent=False))


def _label(axes: Axes, y_label: str, x_label: str) -> None:
    axes.set_ylabel(drawable(y_label))
    axes.set_xlabel(x_label)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5))


def _finite(line: Line) -> Line:
    """The points at which the value, and the band if there is one, are finite."""
    columns = [line.steps, line.values, *(each for each in (line.low, line.high) if each is not None)]
    rows = [row for row in zip(*columns, strict=True) if all(math.isfinite(value) for value in row)]
    steps, values, *bounds = ([*column] for column in zip(*rows, strict=True)) if rows else [[] for _ in columns]
    low = bounds.pop(0) if line.low is not None else None
    return Line(line.name, steps, values, low, bounds[0] if line.high is not None else None)


def _draw(axes: Axes, line: Line, number: int, window: int) -> str:
    """Draws the line and says in a few words how, where that is not each point as it is.

    Args:
        window: how many points a moving mean goes over.
    """
    colour, dashes = style_of(number)
    steps, values = np.asarray(line.steps, float), np.asarray(line.values, float)
    few = len(values) <= _DOTS_UP_TO
    if line.low is not None and line.high is not None and few:
        reach = np.abs(np.asarray([line.low, line.high], float) - values)
        axes.errorbar(steps, values, yerr=reach, fmt="none", ecolor=colour, elinewidth=1, capsize=2.5)
    elif line.low is not None and line.high is not None:
        low, high = (np.asarray(bound, float) for bound in (line.low, line.high))
        at, low, high = _bin_ranges(steps, low, high)
        axes.fill_between(at, low, high, color=colour, alpha=0.16, linewidth=0)
    if len(values) > _MOST_POINTS:
        at, low, high = _bin_ranges(steps, values, values)
        axes.fill_between(at, low, high, color=colour, alpha=0.28, linewidth=0)
        axes.plot(at, _bin_means(values), color=colour, linestyle=dashes, linewidth=1.5)
        return f"line: mean of {_points_per_bin(len(values))}, band: lowest to highest"
    if len(values) < _SMOOTHED_FROM:
        axes.plot(steps, values, color=colour, linestyle=dashes, linewidth=1.5, marker="o" * few, markersize=2.8)
        return ""
    smooth = _moving_mean(values, window)
    rounding = 1e-9 * np.max(np.abs(values))
    if np.std(values - smooth) <= _ROUGH * np.ptp(values) + rounding:  # smoothing would only blunt a schedule's corners
        axes.plot(steps, values, color=colour, linestyle=dashes, linewidth=1.5)
        return ""
    axes.plot(steps, values, color=colour, linewidth=0.7, alpha=0.38)
    axes.plot(steps, smooth, color=colour, linestyle=dashes, linewidth=1.6)
    return f"strong: mean of {window}"


def _moving_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Centred; towards the ends over what there is."""
    sums, counts = (np.convolve(each, np.ones(window), "same") for each in (values, np.ones(len(values))))
    return sums / counts


def _points_per_bin(length: int) -> int:
    return math.ceil(length / _MOST_POINTS)


def _bin_starts(length: int) -> np.ndarray:
    """Index at which each bin begins."""
    return np.arange(0, length, _points_per_bin(length))


def _bin_means(values: np.ndarray) -> np.ndarray:
    starts = _bin_starts(len(values))
    return np.add.reduceat(values, starts) / np.diff([*starts, len(values)])


def _bin_ranges(steps: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean step, lowest and highest value of each bin, so that no peak is lost; all points where they are few."""
    starts = _bin_starts(len(steps))
    return _bin_means(steps), np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)


def _draw_bands(axes: Axes, bands: Sequence[Band]) -> None:
    for number, band in enumerate(bands):
        if number % 2:
            axes.axvspan(band.start, band.end, color=INK, alpha=0.06, linewidth=0)
        axes.annotate(
            drawable(band.name, _LONGEST_NAME // 2),
            ((band.start + band.end) / 2, 1),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="bottom",
            fontsize=7.5,
        )


def _limit_to_0_and_1(axes: Axes, lines: Sequence[Line]) -> None:
    """Room above 100 % or below 0 % would suggest that there is something."""
    values = [value for line in lines for column in (line.values, line.low, line.high) for value in column or ()]
    if min(values) < 0 or max(values) > 1:
        return
    bottom, top = axes.get_ylim()
    axes.set_ylim(max(bottom, -0.015), min(top, 1.015))


def _add_legend(chart: Figure, names: Sequence[str], handles: Sequence[Artist]) -> None:
    """Add a legend whose entries stand beside each other as far as they fit."""
    names = [drawable(name, _LONGEST_NAME) for name in names]
    columns = max(1, min(len(names), 52 // (max(map(len, names)) + 5)))
    chart.legend(handles, names, loc="outside upper left", ncols=columns)


def _description(lines: Sequence[Line], percent: bool) -> str:
    """Description for a reader who cannot see the chart."""
    shown = _percent if percent else _plain
    return "; ".join(
        f"{line.name or 'from'}: {shown(line.values[0])} at step {line.steps[0]:g}, "
        f"{shown(line.values[-1])} at step {line.steps[-1]:g}"
        for line in lines
    )


def _percent(value: float, _: object = None) -> str:
    return f"{100 * value:.3g} %"


def _plain(value: float, _: object = None) -> str:
    if 0 < abs(value) < 1e-3:
        digits, _, power = f"{value:.1e}".partition("e")
        return f"{digits.removesuffix('.0')}e{int(power)}".replace("-", "−")
    return (f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}").replace("-", "−")
