"""The page of a comparison: verdict, chart of the differences, every run, the claims; and these as Markdown."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import mean

from markupsafe import Markup

from rlvr_vocab.analysis.charts import Chart, IntervalRow, Line, interval_chart, line_chart
from rlvr_vocab.analysis.compare.claims import Claim
from rlvr_vocab.analysis.compare.comparison import Comparison
from rlvr_vocab.analysis.compare.runs import ComparedArm, ComparisonResult
from rlvr_vocab.analysis.compare.table import arm_table
from rlvr_vocab.analysis.report.page import Page, chart_grid, claims, paragraph, table
from rlvr_vocab.terminal import clock
from rlvr_vocab.text import listed

CLAIMS = "What the runs show"


def compare_page(compared: ComparisonResult, lines: Sequence[Claim], charts: Sequence[Chart]) -> Page:
    """The page as it can be rendered; `charts` are those of the comparison."""
    sections = {
        "Verdict": chart_grid(charts) + _notes(compared),
        "Arms": table(*arm_table(compared), range(1, 9)),
        "Every run": _runs(compared),
    }
    page = claims_page(compared, lines)
    return replace(page, sections={**sections, **page.sections}, kind="rlvr-vocab comparison")


def claims_page(compared: ComparisonResult, lines: Sequence[Claim]) -> Page:
    """The claims alone, with the flags of all of them at the top."""
    sentence = " ".join(each.sentence for each in compared.comparisons)
    baseline, *others = (arm.name for arm in compared.arms)
    names = f"{listed(others)} against {baseline}"
    title = names if compared.key == "arms" else f"{compared.key}: {names}"
    return Page(title, sentence, {CLAIMS: claims(lines)}, flags=all_flags(lines))


def all_flags(lines: Sequence[Claim]) -> list[str]:
    return [flag for line in lines for flag in line.flags]


def claims_markdown(page: Page, lines: Sequence[Claim]) -> str:
    """The page of the claims as Markdown: title, flags, and a part for each line."""
    parts = [f"# {_plain(page.title)}", _plain(page.sentence)]
    parts += ["\n".join(f"- **{_plain(flag)}**" for flag in page.flags)] if page.flags else []
    for line in lines:
        parts += [f"## {line.name}: {line.status}", *filter(None, [_plain(line.text)])]
        parts += [f"**{_plain(flag)}**" for flag in line.flags]
        listings = {"Not measured; this would measure it:\n\n": line.commands, "": line.listing}
        parts += [f"{before}```sh\n" + "\n".join(each) + "\n```" for before, each in listings.items() if each]
    return "\n\n".join(parts) + "\n"


def _plain(text: str) -> str:
    """A text whose characters mean nothing in Markdown."""
    return re.sub(r"([\\`*<>\[|])", r"\\\1", " ".join(text.split()))


def comparison_charts(compared: ComparisonResult) -> Iterator[Chart]:
    """The differences, and over the steps the metrics that all runs have logged, as the mean of each arm."""
    sentences = " ".join(each.sentence for each in compared.comparisons)
    title = "Difference from the baseline"
    yield difference_chart(compared.comparisons, title=title, baseline="the baseline", description=sentences)
    metric, note = compared.metric, "Mean of an arm's runs; bars or bands reach from the lowest to the highest."
    for name, title in ((f"eval/{metric.name}", f"Held-out {metric.name}"), ("reward", "Reward in training")):
        lines = [line for arm in compared.arms if (line := _arm_line(arm, name)) is not None]
        if len(lines) == len(compared.arms):
            share = metric.is_share and name != "reward"
            yield line_chart(lines, title=title, y_label=name.rpartition("/")[2], percent=share, note=note)


def _notes(compared: ComparisonResult) -> Markup:
    first, note = compared.comparisons[0], "The interval allows for other held-out problems of the same kind"
    if first.verdict == "one run each":
        note += ", and not for other seeds."
    else:
        note += f" and for other seeds of training; runs are {'paired by seed' if first.paired else 'not paired'}."
    return paragraph(note, "note")


def difference_chart(comparisons: Sequence[Comparison], *, title: str, baseline: str, description: str) -> Chart:
    """Each arm less `baseline`, within its interval."""
    first = comparisons[0]
    unit, most = (100, 1.0) if first.metric.is_share else (1, math.inf)
    rows = [
        IntervalRow(
            *(found.other, unit * found.difference, unit * found.low, unit * found.high),
            unit * min(found.smallest_effect, most) if found.variance.seeds else None,
        )
        for found in comparisons
    ]
    label = f"{'percentage points' if first.metric.is_share else first.metric.name} above {baseline}"
    note = f"Dot and line: difference and {100 * first.confidence:g} % interval."
    if first.variance.seeds:
        note += f" Grey: effects below the smallest one that is shown with a chance of {100 * first.power:g} %."
    return interval_chart(rows, title=title, x_label=label, description=description, note=note)


def _arm_line(arm: ComparedArm, metric: str) -> Line | None:
    """The metric at the steps that all runs of the arm have logged; None where there are none."""
    series = [dict(zip(*run.record.series(metric), strict=True)) for run in arm.runs]
    steps = sorted(set(series[0]).intersection(*series[1:]))
    values = [[each[step] for each in series] for step in steps]
    low, middle, high = ([of(each) for each in values] for of in (min, mean, max))
    return Line(arm.name, steps, middle, low, high) if steps else None


def _runs(compared: ComparisonResult) -> Markup:
    rows = [
        (
            *(arm.name, arm.value if run is arm.runs[0] else "", run.seed, run.folder),
            *(compared.metric.value(mean(run.results.scores), " "), f"{len(run.answers):,}"),
            "" if run.grpo_seconds is None else clock(run.grpo_seconds),
        )
        for arm in compared.arms
        for run in arm.runs
    ]
    measured = paragraph(f"{compared.metric.name.capitalize()}{compared.metric.by}: {compared.measured}.")
    columns = ("arm", compared.key, "seed", "run", compared.metric.name, "answers", "GRPO time")
    return measured + table(columns, rows, {4, 5, 6})
