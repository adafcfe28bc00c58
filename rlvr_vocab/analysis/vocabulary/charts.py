"""The charts of what became of a vocabulary, each legible on a phone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from markupsafe import Markup

from rlvr_vocab.analysis.charts import Chart, Line, figure, line_chart, palette
from rlvr_vocab.analysis.svg import RC, as_svg
from rlvr_vocab.analysis.vocabulary.results import (
    Drift,
    DriftPoint,
    Projection,
    Uncertainty,
    Usage,
    VocabularyAnalysis,
)

_LEGEND: dict[str, Any] = {"fontsize": RC["legend.fontsize"], "frameon": False, "borderaxespad": 0.1, "borderpad": 0.1}
_SIDES = {"both": "", "input": "embedding, ", "output": "head, "}


@lru_cache(maxsize=1)  # they are drawn for the page and for files
def vocabulary_charts(analysis: VocabularyAnalysis) -> list[Chart]:
    """The charts that the run has data for."""
    found: list[Chart] = []
    if analysis.usage and any(point.thinking for point in analysis.usage.points):
        found.append(_of_use(analysis, analysis.usage))
    if analysis.drift and analysis.drift.points:
        found += _of_drift(analysis.drift)
    if analysis.projection:
        found.append(_of_projection(analysis.projection))
    if analysis.uncertainty:
        found += _of_uncertainty(analysis.uncertainty)
    return found


def _of_use(analysis: VocabularyAnalysis, usage: Usage) -> Chart:
    title = "Different reasoning tokens"
    caption = f"How many of the {analysis.layout.size:,} were sampled at each step."
    distinct = Line("", [point.step for point in usage.points], [point.distinct for point in usage.points])
    return Chart(title, line_chart([distinct], y_label="different copies", title=title), caption, "distinct")


def _of_drift(drift: Drift) -> Iterator[Chart]:
    kinds = (
        ("drift_source", "Distance of copies from their sources", "cosine_to_source", "1 − cosine"),
        ("drift_start", "Distance of copies from where they began", "cosine_to_start", "1 − cosine"),
        ("drift_norm", "Length of the rows of copies", "norm_to_start", "norm ÷ norm at start"),
    )
    tied = " Embedding and head are one table in this model." if drift.tied else ""
    for name, title, field, label in kinds:
        caption = f"{label.capitalize()} of the rows; line: median, band: 5 to 95 % of the copies.{tied}"
        yield Chart(title, line_chart(_drift_lines(drift.points, field), y_label=label, title=title), caption, name)


def _drift_lines(points: Sequence[DriftPoint], field: str) -> list[Line]:
    lines = []
    for side, group in dict.fromkeys((point.side, point.group) for point in points):
        chosen = [point for point in points if (point.side, point.group) == (side, group)]
        values = np.array([getattr(point, field) for point in chosen])
        low, _, median, _, high = np.sort(1 - values if field.startswith("cosine") else values, axis=1).T.tolist()
        lines.append(Line(f"{_SIDES[side]}{group}", [point.step for point in chosen], median, low, high))
    return lines


def _of_projection(projection: Projection) -> Chart:
    title = "Where training moved the rows"
    which = f"the {len(projection.ks):,} most used of {projection.of:,} copies"
    if len(projection.ks) == projection.of:
        which = f"all {projection.of:,} copies"
    table = {"both": "rows", "input": "embedding rows", "output": "head rows"}[projection.side]
    caption = (
        f"End − start of the {table} of {which} and of their sources, in the two directions that hold most of it "
        f"({100 * projection.explained:.0f} %); what did not move lies at 0, 0."
    )
    return Chart(title, _scatter(projection, title), caption, "projection")


def _scatter(projection: Projection, title: str) -> Markup:
    chart, axes = figure(height=3.2)
    for points, colour, marker, label in (
        (projection.source, palette[0], "o", "sources"),
        (projection.copy, palette[1], "x", "copies"),
    ):
        axes.scatter(points[:, 0], points[:, 1], s=10, color=colour, marker=marker, label=label, linewidths=0.7)
    axes.set_xlabel("first component")
    axes.set_ylabel("second component")
    chart.legend(loc="outside upper left", ncols=2, **_LEGEND)
    return as_svg(chart, title)


def _of_uncertainty(uncertainty: Uncertainty) -> Iterator[Chart]:
    written = [line for line in uncertainty.means if "," in line.name]
    if len(written) > 1:
        title = f"{uncertainty.kind.capitalize()} by what was written"
        caption = "Mean entropy over texts (in runs without sampling_copy_entropies, over ids) where a token was drawn"
        if uncertainty.kind == "surprisal":
            caption = "Mean surprisal (−log p) of the tokens that were drawn; the run recorded no entropies"
        caption += ", while thinking: at standard tokens and at copies."
        yield Chart(title, line_chart(written, y_label="nats", title=title), caption, "entropy_written")
