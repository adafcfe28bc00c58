"""`rlvr-vocab compare`: arms of runs against each other, on the same problems, with an interval and a verdict."""

from __future__ import annotations

import shlex

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rlvr_vocab.analysis.compare.comparison import (
    effect_text,
    interval_points,
    seed_deviation,
    verdict_sentence,
)
from rlvr_vocab.analysis.compare.page import compare_page, format_figure
from rlvr_vocab.analysis.compare.result import ComparisonResult, as_json, compare_runs
from rlvr_vocab.analysis.report.page import render
from rlvr_vocab.atomic_file import write_json_whole, write_whole
from rlvr_vocab.commands.compare.runs import compared_arms, results_in_words
from rlvr_vocab.config.command_sections import CompareSettings
from rlvr_vocab.config.help import command_to_repeat
from rlvr_vocab.config.values import as_typed
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.measure import Measure
from rlvr_vocab.terminal import make_console


def run(settings: CompareSettings) -> int:
    """Print the verdict, write comparison.json and comparison.html; 0 whatever the verdict is."""
    arms = compared_arms(settings)
    compared = compare_runs(
        arms.key,
        results_in_words(settings.evaluation),
        arms.arms,
        arms.differences,
        settings.confidence,
        settings.power,
        settings.pair_seeds,
    )
    write_json_whole(settings.out / "comparison.json", as_json(compared), "out")
    _write_page(settings, compared)
    _print(make_console(), compared)
    make_console().print(f"comparison.html and comparison.json are in {settings.out}", markup=False)
    return 0


def _write_page(settings: CompareSettings, compared: ComparisonResult) -> None:
    training = [command_to_repeat(folder, folder.name) for folder in settings.runs]
    try:
        write_whole(settings.out / "comparison.html", render(compare_page(compared, _command(settings), training)))
    except OSError as error:
        raise UserError(f"out={settings.out} cannot be written: {error.strerror or error}") from error


def _command(settings: CompareSettings) -> str:
    """What makes the comparison again."""
    words = [f"runs=[{','.join(map(str, settings.runs))}]"]
    words += [
        f"{name}={as_typed(value)}"
        for name in ("key", "baseline", "evaluation", "pair_seeds", "confidence", "power", "out")
        if (value := getattr(settings, name)) is not None
    ]
    return shlex.join(["rlvr-vocab", "compare", *words])


def _print(console: Console, compared: ComparisonResult) -> None:
    for found in compared.comparisons:
        console.print(verdict_sentence(found), style="bold", markup=False)
    for warning in compared.warnings:
        console.print(f"warning: {warning}", style="yellow", markup=False)
    for unknown in compared.unchecked:
        console.print(f"not checked: {unknown}", markup=False)
    console.print()
    measure = compared.measure
    console.print(f"{measure.name}{measure.by} ({compared.measured}), arms by {compared.key}:", markup=False)
    for arm in compared.arms:
        if arm.value not in arm.name:  # too long for a name
            console.print(f"{arm.name}: {arm.value}", markup=False)
    for table in (_arms_table(compared), _figures_table(compared)):
        console.print(table)
        console.print()


def _arms_table(compared: ComparisonResult) -> Table:
    measure = compared.measure
    table = _table("arm", measure.name, "std over seeds", "difference", "interval", "smallest effect")
    first = compared.comparisons[0]
    _add_row(table, first.baseline, *_mean_and_spread(first.baseline_scores, measure), "", "", "")
    for found in compared.comparisons:
        _add_row(
            table,
            found.other,
            *_mean_and_spread(found.other_scores, measure),
            measure.difference(found.difference),
            interval_points(found),
            effect_text(found) if found.variance.seeds else "",
        )
    return table


def _figures_table(compared: ComparisonResult) -> Table:
    table = _table("beside it (no claims)", *(arm.name for arm in compared.arms))
    for name in dict.fromkeys(each.name for each in compared.figures):
        cells = []
        for each in compared.figures:
            if each.name == name:
                deviation = "" if each.spread is None else f" ± {format_figure(each.spread, each.percent)}"
                cells.append(f"{format_figure(each.mean, each.percent)}{deviation}")
        _add_row(table, name, *cells)
    return table


def _mean_and_spread(scores: tuple[float, ...], measure: Measure) -> tuple[str, str]:
    deviation = seed_deviation(scores)
    spread = "one run" if deviation is None else measure.difference(deviation, sign=False)
    return measure.value(sum(scores) / len(scores)), spread


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(Text(column), overflow="fold")  # a value of a configuration may look like markup
    return table


def _add_row(table: Table, *cells: str) -> None:
    table.add_row(*map(Text, cells))
