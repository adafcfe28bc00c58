"""The charts of what became of a vocabulary, each legible on a phone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlvr_vocab.analysis.charts import Chart, Line, figure, line_chart, palette
from rlvr_vocab.analysis.svg import RC, as_svg, drawable
from rlvr_vocab.analysis.vocabulary.results import (
    Drift,
    DriftPoint,
    Projection,
    Uncertainty,
    Usage,
    VocabularyAnalysis,
)
from rlvr_vocab.analysis.vocabulary.usage import highest

_MOST_TOKENS = 12
_LEGEND: dict[str, Any] = {"fontsize": RC["legend.fontsize"], "frameon": False, "borderaxespad": 0.1, "borderpad": 0.1}
_SIDES = {"both": "", "input": "embedding, ", "output": "head, "}


@lru_cache(maxsize=1)  # they are drawn for the page and for files
def vocabulary_charts(analysis: VocabularyAnalysis) -> list[Chart]:
    """The charts that the run has data for."""
    found: list[Chart] = []
    if analysis.usage:
        found += _of_use(analysis, analysis.usage)
    if analysis.drift and analysis.drift.points:
        found += _of_drift(analysis.drift)
    if analysis.projection:
        found += _of_projection(analysis.projection)
    if analysis.uncertainty:
        found += _of_uncertainty(analysis, analysis.uncertainty)
    return found


def _of_use(analysis: VocabularyAnalysis, usage: Usage) -> Iterator[Chart]:
    steps = [point.step for point in usage.points]
    thinking = [(point.step, point.share) for point in usage.points if point.thinking]
    if not thinking:
        return
    title = "Reasoning tokens while thinking"
    share = Line("", *zip(*thinking, strict=True))
    caption = "Of all tokens sampled while thinking, the share that are copies."
    yield Chart(title, line_chart([share], y_label="share of tokens", percent=True, title=title), caption, "use")
    title = "Different reasoning tokens"
    distinct = Line("", steps, [point.distinct for point in usage.points])
    caption = f"How many of the {analysis.layout.size:,} were sampled at each step."
    yield Chart(title, line_chart([distinct], y_label="different copies", title=title), caption, "distinct")
    used = [point for point in usage.points if point.copies]
    if not used:
        return
    title = "Concentration of use"
    steps = [point.step for point in used]
    lines = [
        Line("the 10 most used", steps, [point.top_10 for point in used]),
        Line("the 100 most used", steps, [point.top_100 for point in used]),
    ]
    caption = "How much of the use of reasoning tokens at a step the most used ones of that step take."
    yield Chart(title, line_chart(lines, y_label="share of use", percent=True, title=title), caption, "concentration")
    yield from _of_sources(analysis, usage)


def _of_sources(analysis: VocabularyAnalysis, usage: Usage) -> Iterator[Chart]:
    if usage.windows[0] == usage.windows[1] or not usage.sources:
        return
    shown = usage.sources[:_MOST_TOKENS]
    title = "Copies in place of their sources"
    caption = (
        f"The {len(shown)} tokens that were written most while thinking: how often as a copy, "
        f"in steps {_words(usage.windows[0])} and {_words(usage.windows[1])}."
    )
    ends = [(100 * source.early_share, 100 * source.late_share) for source in shown]
    names = analysis.texts.of([source.source for source in shown])
    yield Chart(title, _dumbbells(names, ends, "written as a copy, %", title), caption, "sources")


def _of_drift(drift: Drift) -> Iterator[Chart]:
    kinds = (
        ("drift_source", "Distance of copies from their sources", "cosine_to_source"),
        ("drift_start", "Distance of copies from where they began", "cosine_to_start"),
    )
    tied = " Embedding and head are one table in this model." if drift.tied else ""
    for name, title, field in kinds:
        caption = f"1 − cosine of the rows; line: median, band: 5 to 95 % of the copies.{tied}"
        lines = _drift_lines(drift.points, field, lambda cosines: 1 - cosines)
        yield Chart(title, line_chart(lines, y_label="1 − cosine", title=title), caption, name)
    title = "Length of the rows of copies"
    caption = f"Norm of a copy's row against that at the start; line: median, band: 5 to 95 %.{tied}"
    lines = _drift_lines(drift.points, "norm_to_start", lambda norms: norms)
    yield Chart(title, line_chart(lines, y_label="norm ÷ norm at start", title=title), caption, "drift_norm")
    yield from _of_final(drift)


def _of_final(drift: Drift) -> Iterator[Chart]:
    title = "How far copies ended from their sources"
    chart, axes = figure()
    for number, final in enumerate(drift.final):
        values = np.sort(final.from_source[np.isfinite(final.from_source)])
        if not values.size:
            return
        at = np.unique(np.linspace(0, len(values) - 1, 400).round().astype(int))
        label = (_SIDES[final.side] or "rows, ").rstrip(", ")
        axes.plot(values[at], 100 * (at + 1) / len(values), color=palette[number], label=label)
    axes.set_xlabel("1 − cosine to source")
    axes.set_ylabel("% of copies up to here")
    if len(drift.final) > 1:
        _name(chart)
    yield Chart(title, as_svg(chart, title), f"All copies that may be sampled, at {drift.end}.", "drift_final")


def _drift_lines(points: Sequence[DriftPoint], field: str, turned: Callable[[np.ndarray], np.ndarray]) -> list[Line]:
    lines = []
    for side, group in dict.fromkeys((point.side, point.group) for point in points):
        chosen = [point for point in points if (point.side, point.group) == (side, group)]
        quantiles = turned(np.array([getattr(point, field) for point in chosen]))
        low, high = np.minimum(quantiles[:, 0], quantiles[:, -1]), np.maximum(quantiles[:, 0], quantiles[:, -1])
        steps = [point.step for point in chosen]
        lines.append(Line(f"{_SIDES[side]}{group}", steps, quantiles[:, 2].tolist(), low.tolist(), high.tolist()))
    return lines


def _of_projection(projection: Projection) -> Iterator[Chart]:
    corners = np.concatenate(
        [projection.source_start, projection.copy_start, projection.source_end, projection.copy_end]
    )
    which = f"the {len(projection.ks):,} most used of {projection.of:,} copies"
    if len(projection.ks) == projection.of:
        which = f"all {projection.of:,} copies"
    held = f"{100 * projection.explained:.0f} % of the variance"
    table = {"both": "rows", "input": "embedding rows", "output": "head rows"}[projection.side]
    for when, source, copy in (
        ("start", projection.source_start, projection.copy_start),
        ("end", projection.source_end, projection.copy_end),
    ):
        title = f"Sources and copies at the {when}"
        caption = f"Principal components of the {table} of {which} and their sources, start and end together ({held})."
        svg = _scatter(source, copy, corners, title, linked=True)
        yield Chart(title, svg, caption, f"projection_{when}")
    title = "Where training moved them"
    caption = (
        f"End − start of the same {table}, in the two directions that hold most of it "
        f"({100 * projection.moved_explained:.0f} %); what did not move lies at 0, 0."
    )
    moved = np.concatenate([projection.moved_source, projection.moved_copy])
    svg = _scatter(projection.moved_source, projection.moved_copy, moved, title, linked=False)
    yield Chart(title, svg, caption, "projection_moved")


def _scatter(source: np.ndarray, copy: np.ndarray, corners: np.ndarray, title: str, linked: bool) -> Markup:
    chart, axes = figure(height=3.2)
    if linked:
        links = np.stack([source, copy, np.full_like(source, np.nan)], axis=1).reshape(-1, 2)
        axes.plot(*links.T, color=palette[4], linewidth=0.5, zorder=1)
    axes.scatter(source[:, 0], source[:, 1], s=9, color=palette[0], marker="o", label="sources", linewidths=0)
    axes.scatter(copy[:, 0], copy[:, 1], s=11, color=palette[1], marker="x", label="copies", linewidths=0.7)
    low, high = corners.min(axis=0), corners.max(axis=0)
    room = 0.04 * np.where(high > low, high - low, 1.0)
    axes.set_xlim(low[0] - room[0], high[0] + room[0])
    axes.set_ylim(low[1] - room[1], high[1] + room[1])
    axes.set_xlabel("first component")
    axes.set_ylabel("second component")
    _name(chart)
    return as_svg(chart, title)


def _of_uncertainty(analysis: VocabularyAnalysis, uncertainty: Uncertainty) -> Iterator[Chart]:
    if uncertainty.logged:
        title = "Entropy by region"
        caption = "Of the distributions that tokens were chosen from, as the trainer logged it."
        yield Chart(title, line_chart(uncertainty.logged, y_label="nats", title=title), caption, "entropy")
    copied = [line for line in uncertainty.sampled if "," in line.name]
    if len(copied) > 1:
        title = f"{_kind(uncertainty)} by what was written"
        caption = f"{_meaning(uncertainty)}, while thinking: at standard tokens and at copies."
        yield Chart(title, line_chart(copied, y_label="nats", title=title), caption, "entropy_written")
    shown = highest(uncertainty, _MOST_TOKENS)
    if shown:
        title = f"Tokens of the highest {uncertainty.kind}"
        caption = f"{_meaning(uncertainty)}, while thinking, early and late."
        names = analysis.texts.of([each.source for each in shown])
        ends = [(each.early, each.late) for each in shown]
        yield Chart(title, _dumbbells(names, ends, "nats", title), caption, "entropy_tokens")


def _kind(uncertainty: Uncertainty) -> str:
    return str(uncertainty.kind).capitalize()


def _meaning(uncertainty: Uncertainty) -> str:
    if uncertainty.kind == "entropy":
        return "Mean entropy of the distribution that a token was drawn from"
    return "Mean surprisal (−log p) of the tokens that were drawn; the run recorded no entropies"


def _dumbbells(names: Sequence[str], ends: Sequence[tuple[float, float]], label: str, title: str) -> Markup:
    """For each token an early and a late value on one line, the first token on top."""
    chart, axes = figure(height=0.75 + 0.2 * len(names))
    places = np.arange(len(names))[::-1]
    early, late = np.array(ends).T
    axes.hlines(places, np.fmin(early, late), np.fmax(early, late), color=palette[4], linewidth=1)
    axes.scatter(early, places, s=16, color=palette[0], marker="o", label="early", zorder=3)
    axes.scatter(late, places, s=20, color=palette[1], marker="D", label="late", zorder=3)
    _label_places(axes, places, names)
    axes.set_xlabel(label)
    _name(chart)
    return as_svg(chart, title)


def _label_places(axes: Axes, places: np.ndarray, names: Sequence[str]) -> None:
    axes.set_yticks(places, [drawable(name, 14) for name in names])
    axes.grid(False, axis="y")
    axes.grid(True, axis="x")
    axes.set_ylim(-0.7, len(names) - 0.3)


def _name(chart: Figure) -> None:
    chart.legend(loc="outside upper left", ncols=2, **_LEGEND)


def _words(window: tuple[int, int]) -> str:
    return f"{window[0]:,}" if window[0] == window[1] else f"{window[0]:,}–{window[1]:,}"
