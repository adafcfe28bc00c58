"""The page of a comparison: verdict and warnings, chart of the differences, every run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean

from markupsafe import Markup

from rlvr_vocab.analysis.charts import Chart, IntervalRow, interval_chart
from rlvr_vocab.analysis.compare.comparison import Comparison, is_rough, verdict_sentence
from rlvr_vocab.analysis.compare.runs import ComparisonResult
from rlvr_vocab.analysis.report.page import Page, chart_grid, paragraph, preformatted, table


def compare_page(compared: ComparisonResult, command: str) -> Page:
    """The page as it can be rendered; `command` repeats the comparison."""
    sections = {
        "Verdict": _verdict(compared),
        "Every run": _runs(compared),
        "Reproduce": preformatted(command),
    }
    sentence = " ".join(map(verdict_sentence, compared.comparisons))
    title = f"{compared.key}: {' against '.join(arm.name for arm in reversed(compared.arms))}"
    return Page(title, sentence, sections, kind="rlvr-vocab comparison", warnings=compared.warnings)


def _verdict(compared: ComparisonResult) -> Markup:
    first, note = compared.comparisons[0], "The interval allows for other held-out problems of the same kind"
    if first.verdict == "one run each":
        note += ", and not for other seeds."
    else:
        note += f" and for other seeds of training; runs are {'paired by seed' if first.paired else 'not paired'}."
    if is_rough(first):
        note += " With so few runs the smallest effect is a rough estimate: other seeds may give half of it, or twice."
    return chart_grid([_difference_chart(compared.comparisons)]) + paragraph(note, "note")


def _difference_chart(comparisons: Sequence[Comparison]) -> Chart:
    first, title = comparisons[0], "Difference from the baseline"
    unit, most = (100, 1.0) if first.metric.is_share else (1, math.inf)
    rows = [
        IntervalRow(
            *(found.other, unit * found.difference, unit * found.low, unit * found.high),
            unit * min(found.smallest_effect, most) if found.variance.seeds else None,
        )
        for found in comparisons
    ]
    label = f"{'percentage points' if first.metric.is_share else first.metric.name} above the baseline"
    note = f"Dot and line: difference and {100 * first.confidence:g} % interval."
    if first.variance.seeds:
        note += f" Grey: effects below the smallest one that is shown with a chance of {100 * first.power:g} %."
    sentences = " ".join(map(verdict_sentence, comparisons))
    return Chart(title, interval_chart(rows, x_label=label, title=title, description=sentences), note)


def _runs(compared: ComparisonResult) -> Markup:
    rows = [
        (
            *(arm.name, arm.value if run is arm.runs[0] else "", run.seed, run.folder),
            *(compared.metric.value(mean(run.results.scores), " "), f"{len(run.answers):,}"),
        )
        for arm in compared.arms
        for run in arm.runs
    ]
    measured = paragraph(f"{compared.metric.name.capitalize()}{compared.metric.by}: {compared.measured}.")
    return measured + table(("arm", compared.key, "seed", "run", compared.metric.name, "answers"), rows, {4, 5})
