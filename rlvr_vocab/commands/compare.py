"""`rlvr-vocab compare`: arms of runs against each other, on the same problems, with an interval and a verdict."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from rlvr_vocab.analysis.charts import save_charts
from rlvr_vocab.analysis.compare.claims import Claim, claims_of
from rlvr_vocab.analysis.compare.page import compare_page, comparison_charts, write_claims
from rlvr_vocab.analysis.compare.runs import ComparisonResult
from rlvr_vocab.analysis.compare.table import arm_table, table_text
from rlvr_vocab.config.command_settings import CompareSettings
from rlvr_vocab.files import atomic_write
from rlvr_vocab.record.files import COMPARISON
from rlvr_vocab.runs.comparison import compare
from rlvr_vocab.terminal import make_console, print_table
from rlvr_vocab.text import listed


def run(settings: CompareSettings) -> int:
    """Print the verdict, write comparison.json, .md and .html; returns 0 for any verdict."""
    compared = compare(settings)
    lines, charts = claims_of(compared), [*comparison_charts(compared)]
    page = compare_page(compared, lines, charts)
    write_claims(compared, page, lines, settings.out / COMPARISON)
    console = make_console()
    _print(console, compared, lines, page.flags)
    console.print(f"comparison.html, comparison.md and comparison.json are in {settings.out}", markup=False)
    if settings.table is not None:
        atomic_write(settings.table, table_text(compared, settings.table.suffix), "table")
        console.print(f"the table of the arms is {settings.table}", markup=False)
    if settings.figures is not None:
        save_charts(charts, settings.figures)
        console.print(f"the figures, as SVG and PDF, are in {settings.figures}", markup=False)
    return 0


def _print(console: Console, compared: ComparisonResult, lines: Sequence[Claim], flags: Sequence[str]) -> None:
    for found in compared.comparisons:
        console.print(found.sentence, style="bold", markup=False)
    for flag in flags:
        console.print(f"flag: {flag}", style="red", markup=False)
    if unknown := [line.name for line in lines if line.status == "not measured"]:
        console.print(f"not measured: {listed(unknown)}; comparison.md has the commands", markup=False)
    metric = compared.metric
    console.print(f"\n{metric.name}{metric.by} ({compared.measured}), arms by {compared.key}:", markup=False)
    print_table(console, *arm_table(compared))
    console.print()
