"""`rlvr-vocab report`: writes the report of a run, finished or not, as one HTML file."""

from __future__ import annotations

from rlvr_vocab.config.command_settings import ReportSettings
from rlvr_vocab.runs.report import write_report
from rlvr_vocab.terminal import make_console


def run(settings: ReportSettings) -> int:
    """Write the page and print its path; returns 0."""
    console = make_console()
    write_report(settings)
    console.print(f"the report is in {settings.page}: open it in a browser, it needs no network", markup=False)
    if settings.figures is not None and settings.figures.is_dir():
        console.print(f"its figures, as SVG and PDF, are in {settings.figures}", markup=False)
    return 0
