"""The page of a comparison: verdict, charts, what the runs show; and this as Markdown and JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean

from markupsafe import Markup

from rlvr_vocab.analysis.charts import Chart, IntervalRow, Line, interval_chart, line_chart
from rlvr_vocab.analysis.compare.claims import Claim
from rlvr_vocab.analysis.compare.comparison import Comparison
from rlvr_vocab.analysis.compare.runs import ComparedArm, ComparisonResult
from rlvr_vocab.analysis.compare.table import arm_table
from rlvr_vocab.analysis.report.page import Page, chart_grid, paragraph, preformatted, render, table
from rlvr_vocab.files import atomic_write, json_text
from rlvr_vocab.text import listed


def compare_page(compared: ComparisonResult, lines: Sequence[Claim], charts: Sequence[Chart] = ()) -> Page:
    """The page as it can be rendered, with the flags of all claims at the top; without `charts` the claims alone."""
    sections = {"What the runs show": table(("", "", ""), map(_cells, lines))}
    if charts:
        sections = {"Verdict": chart_grid(charts), "Arms": table(*arm_table(compared), range(1, 9)), **sections}
    sentence = " ".join(each.sentence for each in compared.comparisons)
    baseline, *others = (arm.name for arm in compared.arms)
    names = f"{listed(others)} against {baseline}"
    title = names if compared.key == "arms" else f"{compared.key}: {names}"
    return Page(title, sentence, sections, "rlvr-vocab comparison", [flag for line in lines for flag in line.flags])


def _cells(line: Claim) -> tuple[str, Markup, Markup]:
    parts = [paragraph(line.text), *(paragraph(flag, "flag") for flag in line.flags)]
    parts += [preformatted("\n".join(line.commands))] if line.commands else []
    kind = "missing" if line.status == "not measured" else line.status
    return line.name, paragraph(line.status, kind), Markup("").join(parts)


def write_claims(compared: ComparisonResult, page: Page, lines: Sequence[Claim], path: Path) -> None:
    """Write the page as HTML, Markdown and JSON: `path` with these endings."""

    def plain(text: str) -> str:  # without characters that Markdown would read
        return re.sub(r"([\\`*<>\[|])", r"\\\1", " ".join(text.split()))

    parts = [f"# {plain(page.title)}", plain(page.sentence), *(f"- **{plain(flag)}**" for flag in page.flags)]
    for line in lines:
        parts += [f"## {line.name}: {line.status}", plain(line.text), *(f"**{plain(flag)}**" for flag in line.flags)]
        parts += ["```sh\n" + "\n".join(line.commands) + "\n```"] if line.commands else []
    content = {**compared.as_json(), "claims": list(map(vars, lines))}
    atomic_write(path.with_suffix(".json"), json_text(content), "out")
    atomic_write(path.with_suffix(".md"), "\n\n".join(filter(None, parts)) + "\n", "out")
    atomic_write(path.with_suffix(".html"), render(page), "out")


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
