"""`rlvr-vocab report`: writes the report of a run, finished or not, as one HTML file, or that of a comparison."""

from __future__ import annotations

from rlvr_vocab.analysis.compare.claims import claims_of
from rlvr_vocab.analysis.compare.page import claims_markdown, claims_page
from rlvr_vocab.analysis.report.page import render
from rlvr_vocab.config.command_settings import ReportSettings
from rlvr_vocab.files import atomic_write, json_text
from rlvr_vocab.runs.comparison import compare_again
from rlvr_vocab.runs.report import write_report
from rlvr_vocab.terminal import make_console


def run(settings: ReportSettings) -> int:
    """Write the page and print its path; returns 0."""
    console = make_console()
    if settings.is_comparison:
        write_claims(settings)
        console.print(
            f"beside it, as Markdown and JSON: {settings.page.stem}.md, {settings.page.stem}.json", markup=False
        )
    else:
        write_report(settings)
    console.print(f"the report is in {settings.page}: open it in a browser, it needs no network", markup=False)
    if settings.figures is not None and settings.figures.is_dir():
        console.print(f"its figures, as SVG and PDF, are in {settings.figures}", markup=False)
    return 0


def write_claims(settings: ReportSettings) -> None:
    """The claims of a comparison, computed anew from its runs, as HTML, Markdown and JSON."""
    compared = compare_again(settings.run)
    lines = claims_of(compared)
    page = claims_page(compared, lines)
    content = {"title": page.title, "sentence": page.sentence, "claims": [line.as_json() for line in lines]}
    atomic_write(settings.page, render(page), "out")
    atomic_write(settings.page.with_suffix(".md"), claims_markdown(page, lines), "out")
    atomic_write(settings.page.with_suffix(".json"), json_text(content), "out")
