"""The page of a comparison: verdict and warnings, chart of the differences, runs, curves of the arms, what differs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import mean

from markupsafe import Markup

from rlvr_vocab.analysis.charts import Chart, IntervalRow, Line, interval_chart, line_chart
from rlvr_vocab.analysis.compare.comparison import Comparison, effect_text, is_rough, p_text, verdict_sentence
from rlvr_vocab.analysis.compare.result import ComparedArm, ComparisonResult, seed_deviation
from rlvr_vocab.analysis.report.page import (
    Page,
    Section,
    chart_grid,
    facts,
    heading,
    paragraph,
    preformatted,
    table,
)
from rlvr_vocab.record.metrics import series_of

# Caption, label of the axis, metric, whether it is a share.
_CURVES = (
    ("Held-out accuracy during training", "accuracy", "eval/accuracy", True),
    ("Held-out reward during training", "reward", "eval/reward", False),
    ("Reward", "reward", "reward", False),
    ("Groups without spread", "share of completions", "frac_reward_zero_std", True),
    ("Length of completions", "tokens", "completions/mean_length", False),
    ("Cut off at the length limit", "share of completions", "completions/clipped_ratio", True),
    ("Thinking closed", "share of completions", "thinking/closed", True),
    ("Entropy while answering", "nats", "entropy/answering", False),
    ("Entropy while thinking", "nats", "entropy/thinking", False),
    ("Reasoning tokens", "share while thinking", "thinking/reasoning_share", True),
    ("KL to the initial model", "nats per token", "kl", False),
    ("Time per step", "seconds", "step_time", False),
)


def compare_page(compared: ComparisonResult, command: str, training: Sequence[str]) -> Page:
    """The page as it can be rendered.

    Args:
        command: repeats the comparison; training: repeat its runs.
    """
    again = [paragraph("The comparison:"), preformatted(command)]
    again += [paragraph("Its runs, each beside itself:"), preformatted("\n".join(training))]
    sections = [
        Section("Verdict", _verdict(compared), "verdict"),
        Section("Every run", _runs(compared), "runs"),
        Section("Curves", _curves(compared.arms), "curves"),
        Section("Other figures", _figures(compared), "figures"),
        Section("Configuration", _configuration(compared), "configuration"),
        Section("Reproduce", Markup().join(again), "again"),
    ]
    sentence = " ".join(map(verdict_sentence, compared.comparisons))
    title = f"{compared.key}: {' against '.join(arm.name for arm in reversed(compared.arms))}"
    return Page(title, sentence, sections, kind="rlvr-vocab comparison", warnings=compared.warnings)


def _verdict(compared: ComparisonResult) -> Markup:
    parts = [chart_grid([_difference_chart(compared.comparisons)])]
    for found in compared.comparisons:
        parts += [heading(f"{found.other} against {found.baseline}"), facts(_facts(found))]
    if not compared.warnings:
        parts.append(paragraph("As far as the runs tell, the arms differ in the key under test alone."))
    first = compared.comparisons[0]
    note = "The interval allows for other held-out problems of the same kind"
    if first.verdict == "one run each":
        note += ", and not for other seeds."
    else:
        pairs = "runs of one seed are taken as pairs" if first.paired else "the runs of the arms are not paired"
        note += f" and for other seeds of training; {pairs}."
    if is_rough(first):
        note += " With so few runs the smallest effect is a rough estimate: other seeds may give half of it, or twice."
    return Markup().join([*parts, paragraph(note, "note")])


def _facts(found: Comparison) -> Iterator[tuple[str, str]]:
    metric = found.metric
    yield "verdict", found.verdict
    yield "difference", metric.difference(found.difference)
    yield f"{100 * found.confidence:g} % interval", f"{found.interval}{' points' * metric.is_share}"
    yield "p", p_text(found.p)
    if found.comparisons > 1:
        yield "p after Holm's correction", p_text(found.adjusted_p)
    if found.variance.seeds:
        yield "smallest effect that could have been shown", effect_text(found)
    yield "standard error", metric.difference(math.sqrt(found.variance.total), sign=False)
    yield "problems", f"{found.problems:,}"
    yield "runs", f"{found.counts[0]} and {found.counts[1]}"


def _difference_chart(comparisons: Sequence[Comparison]) -> Chart:
    rows = []
    for found in comparisons:
        unit = 100 if found.metric.is_share else 1
        reach = min(found.smallest_effect, 1.0) if found.metric.is_share else found.smallest_effect
        shown = unit * reach if found.variance.seeds else None
        rows.append(IntervalRow(found.other, unit * found.difference, unit * found.low, unit * found.high, shown))
    first, title = comparisons[0], "Difference from the baseline"
    label = f"{'percentage points' if first.metric.is_share else first.metric.name} above the baseline"
    note = f"Dot and line: difference and {100 * first.confidence:g} % interval."
    if first.variance.seeds:
        note += f" Grey: effects below the smallest one that is shown with a chance of {100 * first.power:g} %."
    sentences = " ".join(map(verdict_sentence, comparisons))
    return Chart(title, interval_chart(rows, x_label=label, title=title, description=sentences), note)


def _runs(compared: ComparisonResult) -> Markup:
    means, rows, metric = [], [], compared.metric
    probed = any(run.probe_verdict for arm in compared.arms for run in arm.runs)
    for arm in compared.arms:
        scores = [sum(run.results.scores) / len(run.results.scores) for run in arm.runs]
        deviation = seed_deviation(scores)
        spread = "one run" if deviation is None else metric.difference(deviation, sign=False)
        means.append((arm.name, metric.value(sum(scores) / len(scores), " "), spread, len(scores)))
        for run, score in zip(arm.runs, scores, strict=True):
            probe = (run.probe_verdict or "not probed",) if probed else ()
            rows.append((arm.name, run.seed, run.folder, metric.value(score, " "), f"{len(run.answers):,}", *probe))
    columns = ["arm", "seed", "run", metric.name, "answers", *["what the copies mean"] * probed]
    return Markup().join(
        [
            paragraph(f"{metric.name.capitalize()}{metric.by}: {compared.measured}."),
            table(("arm", f"mean {metric.name}", "standard deviation over seeds", "runs"), means, {1, 2, 3}),
            table(columns, rows, {3, 4}),
        ]
    )


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
    series = (dict(zip(*series_of(run.rows, run.evaluations, metric), strict=True)) for run in arm.runs)
    logged = [points for points in series if points]
    steps = sorted(set.intersection(*map(set, logged))) if logged else []
    at = [[points[step] for points in logged] for step in steps]
    if len(logged) < 2:
        return Line(arm.name, steps, [mean(values) for values in at])
    return Line(arm.name, steps, [*map(mean, at)], [*map(min, at)], [*map(max, at)])


def _figures(compared: ComparisonResult) -> Markup:
    rows = [(each.name, each.arm, each.text, each.spread_text, each.runs) for each in compared.figures]
    columns = ("figure", "arm", "mean", "standard deviation over seeds", "runs")
    return paragraph("No difference is claimed of these.", "note") + table(columns, rows, {2, 3, 4})


def _configuration(compared: ComparisonResult) -> Markup:
    under_test = paragraph(f"{compared.key} (under test):") + facts((arm.name, arm.value) for arm in compared.arms)
    if not compared.differences:
        return under_test + paragraph("Nothing else differs but seeds, names and folders.")
    runs = [f"{arm.name}, seed {run.seed}" for arm in compared.arms for run in arm.runs]
    rows = [(key, *values) for key, values in compared.differences.items()]
    return under_test + paragraph("Beyond it:") + table(("key", *runs), rows)
