"""`rlvr-vocab compare`: arms of runs against each other, on the same problems, with an interval and a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from rich.console import Console

from rlvr_vocab.analysis.charts import save_charts
from rlvr_vocab.analysis.compare.page import compare_page, comparison_charts
from rlvr_vocab.analysis.compare.runs import (
    ComparedArm,
    ComparedRun,
    ComparisonResult,
    compare_all,
    comparison_warnings,
)
from rlvr_vocab.analysis.compare.table import arm_table, table_text
from rlvr_vocab.analysis.report.page import render
from rlvr_vocab.config.command_settings import CompareSettings
from rlvr_vocab.config.recorded import ABSENT, CODE, NOT_COMPARED, command_line, read_recorded
from rlvr_vocab.config.values import as_typed
from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_write, json_text, read_json_if_there
from rlvr_vocab.record.files import ENVIRONMENT, EVALUATION_RESULTS, EVALUATION_SETTINGS, FINAL_MODEL, PROBLEMS
from rlvr_vocab.record.results import ProblemResult, read_lines, recorded_grader
from rlvr_vocab.runs.folder import configuration_keys, results_file, run_record
from rlvr_vocab.secrets import MASK, is_secret, without_secrets
from rlvr_vocab.terminal import make_console, print_table
from rlvr_vocab.text import pluralize, short_text, visible_text
from rlvr_vocab.training.settings import Lora

def run(settings: CompareSettings) -> int:
    """Print the verdict, write comparison.json and comparison.html; returns 0 for any verdict."""
    named = settings.named
    folders = settings.runs or tuple(folder for runs in named.values() for folder in runs)
    configs = [read_recorded(folder, resolve=True) for folder in folders]
    runs = [_read_run(*each, settings.evaluation) for each in zip(folders, configs, strict=True)]
    differing = differing_keys(configs)
    names = [name for name, own in named.items() for _ in own]
    key = _dividing_key(differing, names) if named else _key_under_test(differing, settings)
    values = differing.pop(key, tuple(names))
    ordered = _baseline_first(key, names or values, settings.baseline)
    arms = _arms(key, ordered, names or values, values, runs)
    order = sorted(range(len(runs)), key=lambda number: ordered.index((names or values)[number]))
    others = {name: tuple(_printable(name, each[number]) for number in order) for name, each in differing.items()}
    comparisons = compare_all(arms, settings.confidence, settings.power, settings.pair_seeds)
    compared = ComparisonResult(
        key=key,
        measured=f"results named {settings.evaluation}" if settings.evaluation else "measured by each run at its end",
        arms=tuple(arms),
        comparisons=comparisons,
        differences=others,
        warnings=comparison_warnings(arms, others, comparisons),
    )
    charts = [*comparison_charts(compared)]
    atomic_write(settings.out / "comparison.json", json_text(compared.as_json()), "out")
    page = render(compare_page(compared, charts, command_line("compare", settings)))
    atomic_write(settings.out / "comparison.html", page, "out")
    console = make_console()
    _print(console, compared)
    console.print(f"comparison.html and comparison.json are in {settings.out}", markup=False)
    if settings.table is not None:
        atomic_write(settings.table, table_text(compared, settings.table.suffix), "table")
        console.print(f"the table of the arms is {settings.table}", markup=False)
    if settings.figures is not None:
        save_charts(charts, settings.figures)
        console.print(f"the figures, as SVG and PDF, are in {settings.figures}", markup=False)
    return 0


def _print(console: Console, compared: ComparisonResult) -> None:
    for found in compared.comparisons:
        console.print(found.sentence, style="bold", markup=False)
    for warning in compared.warnings:
        console.print(f"warning: {warning}", style="yellow", markup=False)
    metric = compared.metric
    console.print(f"\n{metric.name}{metric.by} ({compared.measured}), arms by {compared.key}:", markup=False)
    print_table(console, *arm_table(compared))
    console.print()
