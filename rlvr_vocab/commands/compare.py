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

# Keys without effect in a run without copies, and in one without an adapter.
_OF_COPIES = (
    *("model.reasoning_multiplicity", "model.reasoning_mode", "model.reasoning_rank"),
    *("model.preserve_odds", "model.init_noise", "training.kl_over"),
)
_OF_ADAPTER = [f"model.lora.{each.name}" for each in fields(Lora) if each.name != "enabled"]
# Keys in which runs of one arm may differ: seed, names, and the intervals of logging and saving.
_BOOKKEEPING = (
    *(*NOT_COMPARED, "exp_name", "seed"),
    *("training.logging_steps", "training.kl_log_steps", "training.save_steps", "training.save_strategy"),
    *("training.push_to_hub", "training.hub_model_id", "training.hub_private_repo", "training.hub_revision"),
)
_LIKELY = (  # under test
    *("model.reasoning_vocab_size", "model.source_ids", "tools", "environment", "rewards.functions"),
    "training.trainer",
)
_NOTHING = {"tools": "[]", "environment": "null"}  # the value of a baseline, for other keys 0
_LONGEST_VALUE = 40  # characters of a value in an arm's name


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


def _read_run(folder: Path, config: Mapping[str, Any], evaluation: str | None) -> ComparedRun:
    training, results = config["training"], _measured_results(folder, evaluation)
    record, sampling = run_record(folder), _sampling_settings(results)
    return ComparedRun(
        record=record,
        seed=config["seed"],
        answers=read_lines(results, ProblemResult),
        environment=read_json_if_there(folder / ENVIRONMENT),
        problems=read_json_if_there(folder / PROBLEMS),
        sampling_settings=sampling,
        selects_best=bool(training.get("load_best_model_at_end")) or training.get("save_strategy") == "best",
        grader=sampling.get("grader") if sampling else recorded_grader(folder),
    )


def _measured_results(folder: Path, evaluation: str | None) -> Path:
    """The results at the end of a run, or those named `evaluation`; raises UserError if there are none."""
    places = [results_file(folder, evaluation or "after")]
    if evaluation is not None:
        places.insert(0, folder / FINAL_MODEL / "evaluation" / evaluation / EVALUATION_RESULTS)
    for path in places:
        if path.is_file():
            return path
    key, evaluate = f"evaluation={evaluation}" if evaluation else "runs", "rlvr-vocab evaluate checkpoint"
    remedy = f"finish the run, or make some with {evaluate}={folder}/{FINAL_MODEL} and give evaluation=<name>"
    raise UserError(f"{key}: {folder} has no such results of held-out problems; {remedy}")


def _sampling_settings(results: Path) -> dict[str, Any] | None:
    """The settings of the `rlvr-vocab evaluate` that wrote these complete results; None for a run's own results."""
    if results.name != EVALUATION_RESULTS:
        return None
    settings = read_json_if_there(results.parent / EVALUATION_SETTINGS) or {}
    there, expected = results.read_bytes().count(b"\n"), settings.get("problems", 0) * settings.get("samples", 0)
    if there < expected:
        go_on = f"rlvr-vocab evaluate checkpoint={results.parents[2]} samples={settings['samples']}"
        raise UserError(f"{results} holds {there:,} of {pluralize(expected, 'answer')}: {go_on} continues it")
    return settings


def differing_keys(configs: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """The keys in which configurations differ, without bookkeeping keys, each with its value in every configuration."""
    flat = [
        {
            key: as_typed(value)
            for key, value in configuration_keys(config).items()
            if not any(key == name or key.startswith(f"{name}.") for name in _BOOKKEEPING)
        }
        for config in configs
    ]
    for has_effect, names in ((_has_copies, _OF_COPIES), (_has_adapter, _OF_ADAPTER)):
        of_one = next(filter(has_effect, flat), {})
        shared = {key: of_one[key] for key in names if key in of_one}
        flat = [each if has_effect(each) else each | shared for each in flat]
    found = {}
    for key in dict.fromkeys(key for each in flat for key in each):
        values = [each.get(key, ABSENT) for each in flat]
        if key.startswith(f"{CODE}."):  # another key says where a file is not used
            values = [max(values) if value == ABSENT else value for value in values]
        found[key] = tuple(next(first for first in values if _same(first, value)) for value in values)
    return {key: values for key, values in found.items() if len(set(values)) > 1}


def _has_copies(keys: Mapping[str, str]) -> bool:
    return keys.get("model.source_ids", "null") != "null" or keys.get("model.reasoning_vocab_size") != "0"


def _has_adapter(keys: Mapping[str, str]) -> bool:
    quantized = any("load_in_" in key and value == "true" for key, value in keys.items())
    return quantized or keys.get("model.lora.enabled") == "true"


def _same(one: str, other: str) -> bool:
    try:
        return one == other or float(one) == float(other)
    except ValueError:
        return False


def _dividing_key(differing: Mapping[str, Sequence[str]], names: Sequence[str]) -> str:
    """The one key whose values set named arms apart; `arms` where they differ in none, or in more."""
    [key, values] = next(iter(differing.items()), ("arms", names))
    apart = len(differing) < 2 and len(set(zip(names, values, strict=True))) == len(set(names)) == len(set(values))
    return key if apart else "arms"


def _key_under_test(differing: Mapping[str, Any], settings: CompareSettings) -> str:
    name, key = ("key", settings.key) if settings.arms is None else ("arms", settings.arms)
    names = ", ".join(differing)
    if not differing:
        raise UserError("runs: there is only one arm: the configurations differ only in seeds and names")
    if key is None and len(differing) > 1:
        likely = next((each for each in _LIKELY if each in differing), next(iter(differing)))
        raise UserError(f"the runs differ in several keys ({names}): name the one under test, as in arms={likely}")
    if key is not None and key not in differing:
        raise UserError(f"{name}={key}: not a key that divides these runs into arms; they differ in {names}")
    return key or names


def _baseline_first(key: str, values: Sequence[str], baseline: Any) -> list[str]:
    """The distinct values or names; the baseline is the requested one, else 0 or no tools, else the first run's."""
    wanted, distinct = _NOTHING.get(key, "0") if baseline is None else as_typed(baseline), list(dict.fromkeys(values))
    first = next((value for value in distinct if _same(value, wanted)), None)
    if first is None and baseline is not None:
        raise UserError(f"baseline={wanted}: no such arm; there are {', '.join(distinct)}")
    return sorted(distinct, key=lambda value: value != first)


def _arms(
    key: str, ordered: Sequence[str], of_run: Sequence[str], values: Sequence[str], runs: Sequence[ComparedRun]
) -> list[ComparedArm]:
    """The arms in their order; `of_run` divides the runs, by the names of arms or by `values` of the key."""
    members = [tuple(run for run, own in zip(runs, of_run, strict=True) if own == each) for each in ordered]
    shown = [_printable(key, values[of_run.index(each)]) for each in ordered]
    if of_run is not values:
        return list(map(ComparedArm, map(visible_text, ordered), shown, members))
    short = Path(key).name if key.startswith(f"{CODE}.") else key.rpartition(".")[2]
    values = [Path(value).name for value in shown] if key == "training.trainer" else shown
    names = [f"{short}={short_text(value, _LONGEST_VALUE)}" for value in values]
    if len(set(names)) < len(names):
        names = [f"{short} #{number}" for number in range(1, len(names) + 1)]
    return list(map(ComparedArm, names, shown, members))


def _printable(key: str, value: str) -> str:
    return MASK if is_secret(key, value) else visible_text(without_secrets(value))


def _print(console: Console, compared: ComparisonResult) -> None:
    for found in compared.comparisons:
        console.print(found.sentence, style="bold", markup=False)
    for warning in compared.warnings:
        console.print(f"warning: {warning}", style="yellow", markup=False)
    metric = compared.metric
    console.print(f"\n{metric.name}{metric.by} ({compared.measured}), arms by {compared.key}:", markup=False)
    print_table(console, *arm_table(compared))
    console.print()
