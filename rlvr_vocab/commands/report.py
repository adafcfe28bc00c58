"""`rlvr-vocab report`: writes the report of a run, finished or not, as one HTML file, or what a comparison shows."""

from __future__ import annotations

from rlvr_vocab.analysis.charts import save_charts
from rlvr_vocab.analysis.compare.claims import claims_of
from rlvr_vocab.analysis.compare.page import compare_page, comparison_charts, write_claims
from rlvr_vocab.config.command_settings import ReportSettings
from rlvr_vocab.record.files import COMPARISON
from rlvr_vocab.runs.comparison import compare_again
from rlvr_vocab.runs.report import write_report
from rlvr_vocab.terminal import make_console


def run(settings: ReportSettings) -> int:
    """Write the page and print its path; returns 0."""
    console = make_console()
    if (settings.run / COMPARISON).is_file():
        compared = compare_again(settings.run)
        lines = claims_of(compared)
        write_claims(compared, compare_page(compared, lines), lines, settings.page)
        if settings.figures is not None:
            save_charts([*comparison_charts(compared)], settings.figures)
    else:
        write_report(settings)
    console.print(f"the report is in {settings.page}: open it in a browser, it needs no network", markup=False)
    if settings.figures is not None and settings.figures.is_dir():
        console.print(f"its figures, as SVG and PDF, are in {settings.figures}", markup=False)
    return 0
