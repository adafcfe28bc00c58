"""`rlvr-vocab compare`: arms of runs against each other, on the same problems, with an interval and a verdict."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

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
from rlvr_vocab.analysis.compare.runs import ComparedArm, ComparedRun, KeyDifference, safe_line
from rlvr_vocab.analysis.report.page import render
from rlvr_vocab.config.command_table import CompareSettings
from rlvr_vocab.config.help import command_to_repeat
from rlvr_vocab.config.recorded import ABSENT, NOT_COMPARED, read_recorded
from rlvr_vocab.config.values import as_typed, leaves, read
from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_write_json, atomic_write_text, read_json_if_there
from rlvr_vocab.record.completions import CompletionFiles
from rlvr_vocab.record.files import (
    COMPLETIONS,
    ENVIRONMENT,
    EVALUATION_RESULTS,
    EVALUATION_SETTINGS,
    FINAL_MODEL,
    METRICS,
    SUMMARY,
    read_record,
)
from rlvr_vocab.record.manifest import damage_of_run, problem_in_run
from rlvr_vocab.record.metrics import read_metrics, split_evaluations
from rlvr_vocab.record.probe import read_probe
from rlvr_vocab.record.results import HeldOutMetric, read_results
from rlvr_vocab.runs.record import configuration_keys
from rlvr_vocab.secrets import MASK, is_secret
from rlvr_vocab.terminal import make_console
from rlvr_vocab.text import did_you_mean, pluralize


def run(settings: CompareSettings) -> int:
    """Print the verdict, write comparison.json and comparison.html; 0 whatever the verdict is."""
    key, arms, differences = compared_arms(settings)
    measured = "what each run measured at its end"
    if settings.evaluation is not None:
        measured = f"results named {settings.evaluation}"
    asked = (settings.confidence, settings.power, settings.pair_seeds)
    compared = compare_runs(key, measured, arms, differences, *asked)
    atomic_write_json(settings.out / "comparison.json", as_json(compared), "out")
    training = [command_to_repeat(folder, folder.name) for folder in settings.runs]
    page = render(compare_page(compared, _command(settings), training))
    atomic_write_text(settings.out / "comparison.html", page, "out")
    _print(make_console(), compared)
    make_console().print(f"comparison.html and comparison.json are in {settings.out}", markup=False)
    return 0


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


def _mean_and_spread(scores: tuple[float, ...], measure: HeldOutMetric) -> tuple[str, str]:
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


# A longer value does not fit into a sentence or beside a picture: its arm gets a number.
_LONGEST_VALUE = 40


def compared_arms(
    settings: CompareSettings,
) -> tuple[str, tuple[ComparedArm, ...], tuple[KeyDifference, ...]]:
    """The key under test; the runs divided into arms, the baseline first; what else differs.

    Raises:
        UserError: a run has no results, or they do not divide into arms.
    """
    configs = [read_recorded(folder, resolve=True) for folder in settings.runs]
    runs = [
        _read_run(folder, config, settings.evaluation) for folder, config in zip(settings.runs, configs, strict=True)
    ]
    division = divide_into_arms(configs, settings.key, settings.baseline)
    values = [_printable(division.key, value) for value, _ in division.arms]
    arms = tuple(
        ComparedArm(name, value, tuple(runs[number] for number in members))
        for name, value, (_, members) in zip(_names(division.key, values), values, division.arms, strict=True)
    )
    order = [number for _, members in division.arms for number in members]
    differences = tuple(
        KeyDifference(each, tuple(_printable(each, values[number]) for number in order))
        for each, values in division.others.items()
    )
    return division.key, arms, differences


def _printable(key: str, value: str) -> str:
    """A value as it may be shown: no secret, and nothing that a terminal obeys."""
    return MASK if is_secret(key, value) else safe_line(value)


def _names(key: str, values: Sequence[str]) -> list[str]:
    """Of the arms; where a value is long, all have numbers."""
    short = key.rpartition(".")[2]
    if max(map(len, values)) > _LONGEST_VALUE or len(set(values)) < len(values):
        return [f"{short} #{number}" for number in range(1, len(values) + 1)]
    return [f"{short}={value}" for value in values]


def _read_run(folder: Path, config: Mapping[str, Any], evaluation: str | None) -> ComparedRun:
    rows, evaluations = split_evaluations(read_metrics(folder / METRICS))
    training, results = config["training"], results_file(folder, evaluation)
    changed = problem_in_run(folder, results)
    if changed is not None:
        raise UserError(f"runs: {folder}: {changed}")
    summary, sampling = read_record(folder, SUMMARY), evaluate_settings(results)
    probe = read_probe(folder)
    return ComparedRun(
        folder=str(folder),
        seed=_seed(config),
        grader=((summary if sampling is None else sampling) or {}).get("grader"),
        sampling_settings=sampling,
        from_evaluate=results.name == EVALUATION_RESULTS,
        before_training=results.stem == "before",
        answers=read_results(results),
        rows=rows,
        evaluations=evaluations,
        summary=summary,
        environment=read_record(folder, ENVIRONMENT),
        damage=tuple(chain(*damage_of_run(folder))),
        copies_mean=None if probe is None else probe["verdict"],
        completions=CompletionFiles(folder / COMPLETIONS),
        selects_best=bool(training.get("load_best_model_at_end")) or training.get("save_strategy") == "best",
    )


def _seed(config: Mapping[str, Any]) -> int | str:
    """The seed of the run, with those that were set apart from it."""
    apart = [f"{name} {config['training'][name]}" for name in ("seed", "data_seed") if config["training"].get(name)]
    seed: int = read(int, config["seed"], "seed")
    return ", ".join([str(seed), *apart]) if apart else seed


_OF_A_RUN, _OF_EVALUATE = "evaluation", f"{FINAL_MODEL}/evaluation"
_AT_ITS_END = "after"


def results_file(folder: Path, evaluation: str | None) -> Path:
    """Where the results lie; raises UserError where the run has none of that name."""
    name = evaluation or _AT_ITS_END
    places = [folder / _OF_A_RUN / f"{name}.jsonl"]
    if evaluation is not None:
        places.insert(0, folder / _OF_EVALUATE / evaluation / EVALUATION_RESULTS)
    found = next((path for path in places if path.is_file()), None)
    if found is not None:
        return found
    if evaluation is not None:
        raise UserError(
            f"evaluation={evaluation}: {folder} has no such results (no {' and no '.join(map(str, places))}); "
            f"rlvr-vocab evaluate checkpoint={folder}/{FINAL_MODEL} makes them{_available_results(folder)}"
        )
    raise UserError(
        f"runs: {folder} has no results of its held-out problems (no {_OF_A_RUN}/{_AT_ITS_END}.jsonl), which a run "
        f"measures at its end: rlvr-vocab train config={folder}/config.yaml goes on with it; or measure each "
        f"with rlvr-vocab evaluate checkpoint={folder}/{FINAL_MODEL} and name the results by evaluation=<name>"
        f"{_available_results(folder)}"
    )


def _available_results(folder: Path) -> str:
    names = [path.parent.name for path in sorted((folder / _OF_EVALUATE).glob(f"*/{EVALUATION_RESULTS}"))]
    names += [path.stem for path in sorted((folder / _OF_A_RUN).glob("*.jsonl"))]
    return f"; there is: {', '.join(names)}" if names else ""


def evaluate_settings(path: Path) -> dict[str, Any] | None:
    """How `rlvr-vocab evaluate` was asked for these results; None where they are not its, or it has not said.

    Raises:
        UserError: it has not come to its end.
    """
    settings = read_json_if_there(path.parent / EVALUATION_SETTINGS) if path.name == EVALUATION_RESULTS else None
    if settings is None or not all(isinstance(settings.get(name), int) for name in ("problems", "samples")):
        return settings
    there, expected = path.read_bytes().count(b"\n"), settings["problems"] * settings["samples"]
    if there < expected:
        raise UserError(
            f"{path} holds {there:,} of {pluralize(expected, 'answer')}: rlvr-vocab evaluate "
            f"checkpoint={path.parents[2]} samples={settings['samples']} goes on with it, given its other settings"
        )
    return settings


_WHAT_COPIES_ARE_LIKE = (
    *("model.reasoning_multiplicity", "model.reasoning_mode", "model.reasoning_rank"),
    *("model.preserve_odds", "model.init_noise", "training.kl_over"),
)
# What runs of one arm may differ in: their seed and their names, and how often they log and save.
_BOOKKEEPING = (
    *NOT_COMPARED,
    "exp_name",
    "seed",
    "training.seed",
    "training.data_seed",
    "training.run_name",
    "training.logging_steps",
    "training.kl_log_steps",
    "training.save_steps",
    "training.save_strategy",
    "training.save_total_limit",
)


@dataclass(frozen=True)
class ArmDivision:
    """Runs by their number, divided by the values of the key under test.

    Attributes:
        arms: the value, as it is typed, and the runs that have it; the baseline first.
        others: the other keys in which the runs differ, each with its value in every run.
    """

    key: str
    arms: tuple[tuple[str, tuple[int, ...]], ...]
    others: Mapping[str, tuple[str, ...]]


def divide_into_arms(configs: Sequence[Mapping[str, Any]], key: str | None, baseline: Any) -> ArmDivision:
    """Divide runs into arms by their configurations.

    Args:
        key: the one under test; None where the configurations differ in one alone.
        baseline: its value in the arm that the others are compared with; None for 0, else the first run's.

    Raises:
        UserError: they do not differ, or in several keys and none is named, or there is no such key or value.
    """
    differing = differing_keys(configs)
    key = _key_under_test(configs, differing, key)
    values = differing.pop(key)
    arms = {value: tuple(n for n, other in enumerate(values) if other == value) for value in values}
    first = _baseline(key, list(arms), baseline)
    return ArmDivision(key, ((first, arms.pop(first)), *arms.items()), differing)


def differing_keys(configs: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """The keys in which configurations differ, bookkeeping left out, each with its value in every one.

    What copies are like makes no difference in a run that has none.
    """
    flat = [_as_typed(configuration_keys(config)) for config in configs]
    keys = dict.fromkeys(key for each in flat for key in each)
    with_copies = next((each for each in flat if _has_copies(each)), {})
    of_copies = {key: with_copies[key] for key in _WHAT_COPIES_ARE_LIKE if key in with_copies}
    flat = [each if _has_copies(each) else each | of_copies for each in flat]
    values = {key: _same_spelling([each.get(key, ABSENT) for each in flat]) for key in keys}
    return {key: each for key, each in values.items() if len(set(each)) > 1}


def _has_copies(keys: Mapping[str, str]) -> bool:
    return keys.get("model.source_ids", "null") != "null" or keys.get("model.reasoning_vocab_size") != "0"


def _as_typed(keys: Mapping[str, Any]) -> dict[str, str]:
    return {key: as_typed(value) for key, value in keys.items() if not _is_bookkeeping(key)}


def _same_spelling(values: Sequence[str]) -> tuple[str, ...]:
    """A number that is written in several ways, 0 and 0.0, as it is written first."""
    return tuple(next(first for first in values if _same(first, value)) for value in values)


def _same(one: str, other: str) -> bool:
    """Whether two values are alike, as numbers where they are numbers."""
    if one == other:
        return True
    try:
        return float(one) == float(other)
    except ValueError:
        return False


def _is_bookkeeping(key: str) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in _BOOKKEEPING)


def _key_under_test(configs: Sequence[Mapping[str, Any]], differing: Mapping[str, Any], key: str | None) -> str:
    if key is not None and key not in differing:
        there = {name for config in configs for name, _ in leaves(config)}
        why = f"no run has such a key{did_you_mean(key, list(there))}"
        if key in there:
            why = "it does not make an arm" if _is_bookkeeping(key) else "it has the same value in all runs"
        raise UserError(f"key={key}: {why}{_differing_in_words(differing)}")
    if key is not None:
        return key
    if not differing:
        raise UserError("runs: there is one arm only: the configurations differ in nothing but seeds and names")
    if len(differing) > 1:
        raise UserError(f"the runs differ in several keys ({', '.join(differing)}): say with key= which is under test")
    return next(iter(differing))


def _differing_in_words(differing: Mapping[str, Any]) -> str:
    return f"; they differ in {', '.join(differing)}" if differing else "; the runs differ in no key"


def _baseline(key: str, values: Sequence[str], wanted: Any) -> str:
    if wanted is None:
        return next((value for value in values if _same(value, "0")), values[0])
    found = next((value for value in values if _same(value, as_typed(wanted))), None)
    if found is None:
        raise UserError(f"baseline={as_typed(wanted)}: no run has {key} at that; there is {', '.join(values)}")
    return found
