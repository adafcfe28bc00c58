"""The page of a comparison: verdict and warnings, charts of differences and runs, curves of the arms, what differs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import mean

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.ticker import MaxNLocator

from rlvr_vocab.analysis.charts import INK, RC, Chart, Line, as_svg, drawable, figure, line_chart, style_of
from rlvr_vocab.analysis.compare.comparison import (
    ROUGH_EFFECT,
    Comparison,
    effect_text,
    interval_points,
    is_rough,
    p_figure,
    seed_deviation,
    verdict_sentence,
)
from rlvr_vocab.analysis.compare.result import ComparisonResult, SecondaryFigure
from rlvr_vocab.analysis.compare.runs import ComparedArm, ComparedRun
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

_LONGEST_NAME = 26
# Caption, words at the axis, metric, whether it is a share.
_CURVES = (
    ("Held-out accuracy during training", "accuracy", "eval/accuracy", True),
    ("Held-out reward during training", "reward", "eval/reward", False),
    ("Reward", "reward", "reward", False),
    ("Right among the problems trained on", "accuracy", "rewards/accuracy/mean", True),
    ("Groups without spread", "share of completions", "frac_reward_zero_std", True),
    ("Length of completions", "tokens", "completions/mean_length", False),
    ("Length of thinking", "tokens", "thinking/mean_length", False),
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
        command: what makes the comparison again; training: what makes its runs again.
    """
    drawn = [
        Section("Verdict", _verdict(compared), "verdict"),
        Section("Every run", _runs(compared), "runs"),
        Section("Curves", _curves(compared), "curves"),
        Section("Other figures", _figures(compared.figures), "figures"),
        Section("Configuration", _configuration(compared), "configuration"),
        Section("How to make it again", _again(command, training), "again"),
    ]
    sentence = " ".join(map(verdict_sentence, compared.comparisons))
    title = f"{compared.key}: {' against '.join(arm.name for arm in reversed(compared.arms))}"
    return Page(title, sentence, drawn, kind="rlvr-vocab comparison", warnings=compared.warnings)


def _verdict(compared: ComparisonResult) -> Markup:
    parts = [chart_grid([interval_chart(compared.comparisons)])]
    for found in compared.comparisons:
        if len(compared.comparisons) > 1:
            parts.append(heading(f"{found.other} against {found.baseline}"))
        parts.append(facts(_facts(found)))
    if not compared.warnings:
        parts.append(paragraph("As far as the runs tell, the arms differ in the key under test alone."))
    parts.append(paragraph(_method(compared.comparisons[0]), "note"))
    return Markup().join(parts)


def _facts(found: Comparison) -> Iterator[tuple[str, str]]:
    one_run = found.verdict == "one run each"
    yield "verdict", "one run cannot tell arms apart" if one_run else found.verdict
    measure = found.measure
    yield "difference", measure.difference(found.difference)
    yield f"{100 * found.confidence:g} % interval", f"{interval_points(found)}{' points' * measure.is_share}"
    yield "p", p_figure(found.p)
    if found.comparisons > 1:
        yield "p after Holm's correction", p_figure(found.adjusted_p)
    if not one_run:
        yield "smallest effect that could have been shown", effect_text(found)
    yield "standard error", measure.difference(math.sqrt(found.variance.total), sign=False)
    yield "problems", f"{found.problems:,}"
    yield "runs", f"{len(found.baseline_scores)} and {len(found.other_scores)}"


def _method(found: Comparison) -> str:
    problems = "The interval allows for other held-out problems"
    if found.verdict == "one run each":
        return f"{problems} of the same kind, and not for other seeds: with one run of an arm their luck is not seen."
    how = "runs of one seed are taken as pairs" if found.paired else "the runs of the arms are not paired"
    corrected = (
        f" The verdicts rest on p-values after Holm's correction for {found.comparisons} comparisons; "
        "the intervals stand each for itself."
        if found.comparisons > 1
        else ""
    )
    rough = f" {ROUGH_EFFECT}" if is_rough(found) else ""
    return f"{problems} of the same kind and for other seeds of training; {how}.{corrected}{rough}"


def _runs(compared: ComparisonResult) -> Markup:
    means, rows, measure = [], [], compared.measure
    probed = any(run.copies_mean for arm in compared.arms for run in arm.runs)
    for arm in compared.arms:
        scores = [sum(run.results.scores) / len(run.results.scores) for run in arm.runs]
        deviation = seed_deviation(scores)
        spread = "one run" if deviation is None else measure.difference(deviation, sign=False)
        means.append((arm.name, measure.value(sum(scores) / len(scores), " "), spread, len(scores)))
        rows += [
            (arm.name, str(run.seed), run.folder, measure.value(score, " "), f"{len(run.answers):,}")
            + ((run.copies_mean or "not probed",) if probed else ())
            for run, score in zip(arm.runs, scores, strict=True)
        ]
    columns = ("arm", "seed", "run", measure.name, "answers") + ("what the copies mean",) * probed
    return Markup().join(
        [
            paragraph(f"{measure.name.capitalize()}{measure.by}: {compared.measured}."),
            table(("arm", f"mean {measure.name}", "standard deviation over seeds", "runs"), means, {1, 2, 3}),
            table(columns, rows, {3, 4}),
        ]
    )


def _curves(compared: ComparisonResult) -> Markup:
    charts = arm_curves(compared.arms)
    if not charts:
        return paragraph("No run has logged anything that could be drawn.", "missing")
    note = "The mean over the seeds of an arm, within the band from the lowest to the highest seed."
    return paragraph(note, "note") + chart_grid(charts)


def _figures(figures: Sequence[SecondaryFigure]) -> Markup:
    rows = [(each.name, each.arm, format_figure(each.mean, each.percent), _spread(each), each.runs) for each in figures]
    note = "Told, not tested: of these no difference is claimed."
    columns = ("figure", "arm", "mean", "standard deviation over seeds", "runs")
    return paragraph(note, "note") + table(columns, rows, {2, 3, 4})


def _spread(figure: SecondaryFigure) -> str:
    return "one run" if figure.spread is None else format_figure(figure.spread, figure.percent)


def format_figure(value: float, percent: bool) -> str:
    """A figure as it stands in a table."""
    if percent:
        return f"{100 * value:.1f} %"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{round(value, 9):.3g}"


def _configuration(compared: ComparisonResult) -> Markup:
    under_test = paragraph(f"{compared.key} (under test):") + facts((arm.name, arm.value) for arm in compared.arms)
    if not compared.differences:
        return under_test + paragraph("Nothing else differs but seeds, names and folders.")
    runs = [f"{arm.name}, seed {run.seed}" for arm in compared.arms for run in arm.runs]
    rows = [(each.key, *each.values) for each in compared.differences]
    return under_test + paragraph("Beyond it:") + table(("key", *runs), rows)


def _again(command: str, training: Sequence[str]) -> Markup:
    runs = paragraph("Its runs, each beside itself:") + preformatted("\n".join(training))
    return paragraph("The comparison:") + preformatted(command) + runs


@rc_context(RC)
def interval_chart(comparisons: Sequence[Comparison]) -> Chart:
    """Each difference as a dot within its interval; grey, what could not have been shown."""
    chart, axes = figure(height=1.3 + 0.45 * len(comparisons))
    for row, found in enumerate(comparisons):
        at, (colour, _) = len(comparisons) - 1 - row, style_of(row + 1)
        share = found.measure.is_share
        unit, reach = (100, 100 * min(found.smallest_effect, 1.0)) if share else (1, found.smallest_effect)
        if found.variance.seeds:
            axes.barh(at, 2 * reach, left=-reach, height=0.62, color=INK, alpha=0.1, linewidth=0)
        axes.plot([unit * found.low, unit * found.high], [at, at], color=colour, linewidth=2.2, solid_capstyle="round")
        axes.plot([unit * found.difference], [at], "o", color=colour, markersize=6)
    axes.axvline(0, color=INK, linewidth=0.9)
    names = labels([each.other for each in comparisons])
    axes.set_yticks(range(len(names)), names[::-1])
    axes.set_ylim(-0.7, len(names) - 0.3)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
    axes.grid(True, axis="x")
    axes.xaxis.set_major_locator(MaxNLocator(6))
    of = "percentage points" if comparisons[0].measure.is_share else comparisons[0].measure.name
    axes.set_xlabel(f"{of} above the baseline")
    words = " ".join(verdict_sentence(each) for each in comparisons)
    note = f"Dot and line: difference and {100 * comparisons[0].confidence:g} % interval."
    if any(each.variance.seeds for each in comparisons):
        chance = f"{100 * comparisons[0].power:g} %"
        note += f" Grey: effects smaller than these seeds and problems show with a chance of {chance}."
    return Chart("Difference from the baseline", as_svg(chart, "Difference from the baseline", words), note)


def labels(names: Sequence[str]) -> list[str]:
    """Names short enough for a chart: the ends of long names, where the values are; numbered where those are alike."""
    whole = list(map(drawable, names))
    short = [name if len(name) <= _LONGEST_NAME else f"…{name[1 - _LONGEST_NAME :]}" for name in whole]
    if len(set(short)) == len(short):
        return short
    return [f"#{number} {name[-_LONGEST_NAME:]}" for number, name in enumerate(short, 1)]


def arm_curves(arms: Sequence[ComparedArm]) -> list[Chart]:
    """A chart of each metric that some arm has logged and that is not the same throughout, or as the one before."""
    charts, names = [], labels([arm.name for arm in arms])
    drawn: list[tuple[Sequence[float], Sequence[float]]] = []
    for caption, label, metric, percent in _CURVES:
        lines = [line for arm, name in zip(arms, names, strict=True) if (line := _line(arm, name, metric)).steps]
        points = [(line.steps, line.values) for line in lines]
        values = {value for line in lines for value in line.values}
        if len(values) > 1 and points != drawn:
            drawn = points
            svg = line_chart(lines, y_label=label, percent=percent, title=caption)
            charts.append(Chart(caption, svg))
    return charts


def _line(arm: ComparedArm, name: str, metric: str) -> Line:
    """The steps that all runs of the arm have which logged the metric at all."""
    logged = [points for run in arm.runs if (points := _points(run, metric))]
    steps = sorted(set.intersection(*(set(points) for points in logged))) if logged else []
    at = [[points[step] for points in logged] for step in steps]
    if len(logged) < 2:
        return Line(name, steps, [mean(values) for values in at])
    return Line(name, steps, [*map(mean, at)], [*map(min, at)], [*map(max, at)])


def _points(run: ComparedRun, metric: str) -> dict[int, float]:
    return dict(zip(*series_of(run.rows, run.evaluations, metric), strict=True))
