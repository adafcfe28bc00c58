"""The page of a comparison: verdict and warnings, chart of the differences, runs, curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean

from markupsafe import Markup

from rlvr_vocab.analysis.charts import Chart, IntervalRow, Line, interval_chart, line_chart
from rlvr_vocab.analysis.compare.comparison import Comparison, is_rough, verdict_sentence
from rlvr_vocab.analysis.compare.runs import ComparedArm, ComparisonResult
from rlvr_vocab.analysis.report.page import Page, chart_grid, facts, paragraph, preformatted, table

# Caption, label of the axis, metric, whether it is a share.
_CURVES = (
    ("Held-out accuracy during training", "accuracy", "eval/accuracy", True),
    ("Held-out reward during training", "reward", "eval/reward", False),
    ("Reward", "reward", "reward", False),
    ("Groups without spread", "share of completions", "frac_reward_zero_std", True),
    ("Length of completions", "tokens", "completions/mean_length", False),
    ("Entropy while thinking", "nats", "entropy/thinking", False),
)


def compare_page(compared: ComparisonResult, command: str) -> Page:
    """The page as it can be rendered; `command` repeats the comparison."""
    sections = {
        "Verdict": _verdict(compared),
        "Every run": _runs(compared),
        "Curves": _curves(compared.arms),
        "Configuration": _configuration(compared),
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
        (arm.name, run.seed, run.folder, compared.metric.value(mean(run.results.scores), " "), f"{len(run.answers):,}")
        for arm in compared.arms
        for run in arm.runs
    ]
    measured = paragraph(f"{compared.metric.name.capitalize()}{compared.metric.by}: {compared.measured}.")
    return measured + table(("arm", "seed", "run", compared.metric.name, "answers"), rows, {3, 4})


def _curves(arms: Sequence[ComparedArm]) -> Markup:
    """A chart of each metric that some arm has logged and that is not the same throughout."""
    charts = []
    for caption, label, metric, percent in _CURVES:
        lines = [line for arm in arms if (line := _line(arm, metric)).steps]
        if len({value for line in lines for value in line.values}) > 1:
            charts.append(Chart(caption, line_chart(lines, y_label=label, percent=percent, title=caption)))
    if not charts:
        return paragraph("No run has logged a metric that changes.", "missing")
    note = "The mean over the seeds of an arm, within the band from the lowest to the highest seed."
    return paragraph(note, "note") + chart_grid(charts)


def _line(arm: ComparedArm, metric: str) -> Line:
    """The steps that are in all runs of the arm which have the metric."""
    series = (dict(zip(*run.record.series(metric), strict=True)) for run in arm.runs)
    logged = [points for points in series if points]
    steps = sorted(set.intersection(*map(set, logged))) if logged else []
    at = [[points[step] for points in logged] for step in steps]
    if len(logged) < 2:
        return Line(arm.name, steps, [mean(values) for values in at])
    return Line(arm.name, steps, [*map(mean, at)], [*map(min, at)], [*map(max, at)])


def _configuration(compared: ComparisonResult) -> Markup:
    under_test = paragraph(f"{compared.key} (under test):") + facts((arm.name, arm.value) for arm in compared.arms)
    if not compared.differences:
        return under_test + paragraph("Nothing else differs but seeds, names and folders.")
    runs = [f"{arm.name}, seed {run.seed}" for arm in compared.arms for run in arm.runs]
    rows = [(key, *values) for key, values in compared.differences.items()]
    return under_test + paragraph("Beyond it:") + table(("key", *runs), rows)
