"""The page of a comparison: the verdict with its warnings, its figures, curves of all arms, and what else differs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from markupsafe import Markup

from rlvr_vocab.analysis.compare.charts import arm_curves, interval_chart, runs_chart
from rlvr_vocab.analysis.compare.comparison import (
    ROUGH_EFFECT,
    Comparison,
    effect_text,
    interval_points,
    is_rough,
    p_text,
    seed_deviation,
    verdict_sentence,
)
from rlvr_vocab.analysis.compare.result import ComparisonResult, SecondaryFigure
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
    warnings = [*compared.warnings, *(f"Not checked: {each}." for each in compared.unchecked)]
    return Page(title, sentence, drawn, kind="rlvr-vocab comparison", warnings=warnings)


def _verdict(compared: ComparisonResult) -> Markup:
    parts = [chart_grid([interval_chart(compared.comparisons), runs_chart(compared.comparisons)])]
    for found in compared.comparisons:
        if len(compared.comparisons) > 1:
            parts.append(heading(f"{found.other} against {found.baseline}"))
        parts.append(facts(_facts(found)))
    if not compared.warnings and not compared.unchecked:
        parts.append(paragraph("As far as the runs tell, the arms differ in the key under test alone."))
    parts.append(paragraph(_method(compared.comparisons[0]), "note"))
    return Markup().join(parts)


def _facts(found: Comparison) -> Iterator[tuple[str, str]]:
    one_run = found.verdict == "one run each"
    yield "verdict", "one run cannot tell arms apart" if one_run else found.verdict
    measure = found.measure
    yield "difference", measure.difference(found.difference)
    yield f"{100 * found.confidence:g} % interval", f"{interval_points(found)}{' points' * measure.is_share}"
    yield "p", p_text(found.p).removeprefix("p = ").removeprefix("p ")
    if found.comparisons > 1:
        yield "p after Holm's correction", p_text(found.adjusted_p).removeprefix("p = ").removeprefix("p ")
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
