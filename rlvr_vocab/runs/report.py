"""Writes the report of a run, one HTML file."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from rlvr_vocab.analysis.charts import save_charts
from rlvr_vocab.analysis.doctor.diagnose import diagnose
from rlvr_vocab.analysis.report.outcome import HeldOutAnswers
from rlvr_vocab.analysis.report.page import render
from rlvr_vocab.analysis.report.run_page import RunReport, curves, run_page
from rlvr_vocab.analysis.vocabulary import analyse_vocabulary, write_vocabulary
from rlvr_vocab.config.command_settings import ReportSettings
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import NOT_COMPARED, command_to_repeat, config_yaml, is_from_python, read_recorded
from rlvr_vocab.config.values import as_typed
from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_write, read_json_if_there
from rlvr_vocab.record.completions import CompletionFiles
from rlvr_vocab.record.files import CHANGES, COMPLETIONS, CONFIG, ENVIRONMENT, INITIAL_MODEL, SUMMARY
from rlvr_vocab.record.metrics import RunRecord, read_rows
from rlvr_vocab.record.results import HeldOutMetric, ProblemResult, read_lines, read_probe, recorded_grader
from rlvr_vocab.runs.folder import configuration_keys, results_file, run_record
from rlvr_vocab.secrets import without_secrets
from rlvr_vocab.vocab.layout import LAYOUT_FILE
from rlvr_vocab.vocab.marking import Marker


def write_report(settings: ReportSettings) -> None:
    """Write the page of a run; one in the run's folder comes with `vocabulary.csv`, the copies used or moved."""
    record = run_record(settings.run)
    folder, initial_model = record.folder, record.folder / INITIAL_MODEL
    vocabulary, recorded = analyse_vocabulary(folder), read_recorded(folder, resolve=True)
    environment = read_json_if_there(folder / ENVIRONMENT)
    if from_python := is_from_python(recorded):
        repeat = shlex.join(["python", *(environment or {}).get("command", ())])
    else:
        repeat = command_to_repeat(folder, str(recorded["exp_name"]))
    report = RunReport(
        record=record,
        held_out=held_out_of(record),
        findings=diagnose(record),
        completions=CompletionFiles(folder / COMPLETIONS),
        marker=Marker.from_folder(initial_model) if (initial_model / LAYOUT_FILE).is_file() else None,
        vocabulary=vocabulary,
        environment=environment,
        probe=read_probe(folder),
        # As the script gave it, without the defaults of the command line.
        configuration=without_secrets((folder / CONFIG).read_text() if from_python else config_yaml(recorded)),
        changed_keys=tuple(_changed(recorded)),
        changed_on_resume=tuple(
            (str(row["at"]), str(row["key"]), as_typed(row["from"]), as_typed(row["to"]))
            for row in read_rows(folder / CHANGES)
        ),
        command_to_repeat=repeat,
        max_samples=settings.max_samples,
    )
    charts = [*curves(report)]
    atomic_write(settings.page, render(run_page(report, charts)), "out")
    if settings.figures is not None:
        save_charts(charts, settings.figures)
    if vocabulary is not None and settings.page.parent.resolve() == settings.run.resolve():
        write_vocabulary(vocabulary)


def report_at_the_end(run: Path, console: Console) -> None:
    """Write the report of an ended run unless it is up to date; a failure is only a warning."""
    try:
        settings = read_settings("report", [f"run={as_typed(str(run))}"])
        newer = settings.page.is_file() and settings.page.stat().st_mtime_ns >= (run / SUMMARY).stat().st_mtime_ns
        if newer and settings.page.read_bytes().rstrip().endswith(b"</html>"):
            return
        write_report(settings)
    except (UserError, OSError) as error:
        console.print(f"warning: the run is complete, but has no report: {error}", style="yellow", markup=False)
    else:
        console.print(f"its report: {settings.page}", markup=False)


def held_out_of(record: RunRecord) -> HeldOutAnswers:
    """The held-out answers of a run; UserError where a file of them cannot be read."""
    files = (results_file(record.folder, when) for when in ("before", "after"))
    before, after = (read_lines(path, ProblemResult) if path.is_file() else [] for path in files)
    return HeldOutAnswers(before, after, HeldOutMetric.of(recorded_grader(record.folder)))


def _changed(recorded: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(key, value, default) of each key that defines the run and differs from its default; no bookkeeping keys."""
    defaults = configuration_keys(read_settings("train", []).resolved)
    for key, value in configuration_keys(recorded).items():
        if key.partition(".")[0] not in NOT_COMPARED and (key not in defaults or value != defaults[key]):
            default = "(not set)" if key not in defaults else as_typed(defaults[key])
            yield key, without_secrets(as_typed(value)), default
