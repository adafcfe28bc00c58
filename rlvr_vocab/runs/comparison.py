"""Reads the runs of a comparison: which are the arms, what was recorded of each, what was tried beside them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import chdir
from dataclasses import fields
from pathlib import Path
from typing import Any

from rlvr_vocab.analysis.compare.runs import (
    ComparedArm,
    ComparedRun,
    ComparisonResult,
    TriedRun,
    compare_all,
    problem_of,
)
from rlvr_vocab.config.command_settings import COMMANDS, CompareSettings
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import ABSENT, CODE, NOT_COMPARED, command_line, command_to_repeat, read_recorded
from rlvr_vocab.config.values import as_typed
from rlvr_vocab.data.source import FROM_PYTHON
from rlvr_vocab.errors import UserError
from rlvr_vocab.files import read_json, read_json_if_there
from rlvr_vocab.record.files import (
    COMPARISON,
    COMPLETIONS,
    CONFIG,
    ENVIRONMENT,
    EVALUATION_RESULTS,
    EVALUATION_SETTINGS,
    FINAL_MODEL,
    PROBLEMS,
    SUMMARY,
)
from rlvr_vocab.record.metrics import Row
from rlvr_vocab.record.results import ProblemResult, read_lines, read_probe, recorded_grader
from rlvr_vocab.rewards.build import RewardContext, required_columns
from rlvr_vocab.rewards.grader import GraderSpec
from rlvr_vocab.rewards.library import LIBRARY
from rlvr_vocab.rewards.reward import RewardSpec, traits_by_name
from rlvr_vocab.runs.folder import configuration_keys, results_file, run_record
from rlvr_vocab.runs.rewards import gold_errors
from rlvr_vocab.secrets import MASK, is_secret, without_secrets
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
_RATE = "training.learning_rate"


def compare(settings: CompareSettings) -> ComparisonResult:
    """Divide the runs into arms and compare these; UserError where a file cannot be read, or nothing compared."""
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
    arm_names = [arms[ordered.index(name)].name for name in names or values]
    tried, looked_in = _tried_runs(settings, folders, configs, arm_names, key, comparisons[0].metric.name)
    return ComparisonResult(
        key=key,
        measured=f"results named {settings.evaluation}" if settings.evaluation else "measured by each run at its end",
        arms=tuple(arms),
        comparisons=comparisons,
        differences=others,
        tried=tried,
        looked_in=looked_in,
        grader_errors=_grader_errors(runs, configs[0]),
        command=command_line("compare", settings),
        directory=str(Path.cwd()),
    )


def compare_again(folder: Path) -> ComparisonResult:
    """The comparison whose comparison.json a folder holds, from the runs as they are now."""
    path = folder / COMPARISON
    recorded = read_json(path, {"command": str, "directory": str})
    try:
        with chdir(recorded["directory"]):
            return compare(read_settings("compare", shlex.split(recorded["command"])[2:]))
    except (KeyError, FileNotFoundError) as error:  # an older version wrote it, or its folder was moved
        raise UserError(f"{path} cannot be computed again ({error}): run rlvr-vocab compare") from error


def _read_run(folder: Path, config: Mapping[str, Any], evaluation: str | None) -> ComparedRun:
    training, results = config["training"], _measured_results(folder, evaluation)
    sampling, environment = _sampling_settings(results), read_json_if_there(folder / ENVIRONMENT)
    grader = sampling.get("grader") if sampling else recorded_grader(folder)
    commands = [each["command"] for each in (environment, sampling) if each and each.get("command")]
    return ComparedRun(
        record=run_record(folder),
        seed=config["seed"],
        answers=read_lines(results, ProblemResult),
        environment=environment,
        problems=read_json_if_there(folder / PROBLEMS),
        probe=read_probe(folder),
        sampling_settings=sampling,
        selects_best=bool(training.get("load_best_model_at_end")) or training.get("save_strategy") == "best",
        grader=grader,
        has_copies=_has_copies({key: as_typed(value) for key, value in configuration_keys(config).items()}),
        commands=_commands(folder, config, results, grader),
        typed=tuple(map(_typed, commands)),
    )


def _typed(words: Sequence[str]) -> str:
    """A recorded command line: that of this program without its path, or of a script."""
    return shlex.join(["rlvr-vocab", *words[1:]] if {*words[1:2]} & COMMANDS.keys() else ["python", *words])


def _commands(folder: Path, config: Mapping[str, Any], results: Path, grader: Row | None) -> dict[str, str]:
    """What would measure a part of the claims; a run from Python is trained again by its script alone."""
    trusted, name = ["trust_code=true"] if config.get(CODE) else [], str(config["dataset"]["name"])
    script = shlex.join(["python", name.removeprefix(FROM_PYTHON)]) if name.startswith(FROM_PYTHON) else ""
    again = script or " ".join([command_to_repeat(folder, str(config["exp_name"])), *trusted])

    def command(name: str, *words: str) -> str:
        return script or shlex.join(["rlvr-vocab", name, f"config={folder}/{CONFIG}", *words, *trusted])

    asked = config["evaluation"]["grader"]
    graded = [f"rewards={as_typed(asked)}"] if asked else []
    if not any(traits_by_name(part["name"]).skip_gold_check for part in (grader or {"functions": []})["functions"]):
        graded.append("model.name=null")  # gold answers, and no samples
    has_completions, has_model = (folder / COMPLETIONS).is_dir(), (folder / FINAL_MODEL).is_dir()
    probed = folder if has_model or script else folder.with_name(f"{folder.name}_again")
    probe = shlex.join(["rlvr-vocab", "probe", f"run={probed}"])
    return {
        "train": again if (folder / SUMMARY).is_file() else command("train"),
        "problems": command("check", "model.name=null", f"against={results}", "against_problem_column=prompt"),
        "grader": command("score", *graded),
        "thoughts": command("score", f"completions={folder}/{COMPLETIONS}") if has_completions else again,
        "copies": probe if has_model else f"{again} && {probe}",
    }


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


# --- what was tried beside them, and how their grader errs ---


def _tried_runs(
    settings: CompareSettings,
    folders: Sequence[Path],
    configs: Sequence[Mapping[str, Any]],
    arms: Sequence[str],
    key: str,
    metric: str,
) -> tuple[tuple[TriedRun, ...], str]:
    """The other runs of these problems and models, and where they were found; `arms` has that of each compared run."""
    parents = dict.fromkeys(folder.parent for folder in folders)
    beside = [path.parent for parent in parents for path in sorted(parent.glob(f"*/{CONFIG}"))]
    where = ", ".join(map(str, parents)) if settings.tried is None else f"tried={as_typed(settings.tried)}"
    compared, found = {folder.resolve() for folder in folders}, list[tuple[Path, dict[str, Any], Row]]()
    subjects = [(config["dataset"]["name"], config["model"]["name"]) for config in configs]
    for folder in beside if settings.tried is None else settings.tried:
        if folder.resolve() in compared:
            continue
        try:
            config, ended = read_recorded(folder, resolve=True), read_json_if_there(folder / SUMMARY)
            configuration_keys(config)  # an older version may have recorded rewards that this one does not read
        except UserError:
            where += f" ({folder} cannot be read)"
        else:
            if (config["dataset"]["name"], config["model"]["name"]) in subjects:
                found.append((folder, config, ended or {}))
    differing = differing_keys([*configs, *(config for _, config, _ in found)])
    kept = [values for name, values in differing.items() if name != _RATE or key == _RATE]
    rows = [tuple(values[number] for values in kept) for number in range(len(configs) + len(found))]
    arm_of, tried = dict(zip(rows, arms, strict=False)), list[TriedRun]()
    for row, (folder, config, summary) in zip(rows[len(configs) :], found, strict=True):
        outcome = bool(summary.get("finished")), summary.get(f"{metric}_after")
        tried.append(TriedRun(str(folder), arm_of.get(row), config["training"]["learning_rate"], *outcome))
    return tuple(tried), where


def _grader_errors(runs: Sequence[ComparedRun], config: Mapping[str, Any]) -> dict[str, Any] | str:
    """The errors of the grader on the gold answers of the runs, or why they are not measured."""
    record = runs[0].grader
    if record is None or record["threshold"] is None:
        return "nothing is right or wrong"
    parts = record["functions"]
    if any("file" in part or part["name"] not in LIBRARY for part in parts):
        return "its code is your own, which this command does not import"
    if reason := next((reason for part in parts if (reason := traits_by_name(part["name"]).skip_gold_check)), ""):
        return reason
    specs = tuple(RewardSpec(part["name"], part["weight"], part["params"]) for part in parts)
    if lacking := {column for spec in specs for column in required_columns(spec)} - {"solution"}:
        return f"results do not have {', '.join(sorted(lacking))}"
    golds = dict(map(problem_of, (answer for run in runs for answer in run.answers)))
    if {*golds.values()} <= {None}:
        return "no problem has a gold answer"
    opened, closed = config["model"]["think_tags"]
    context = RewardContext((opened, closed), decimal_mark=config["dataset"].get("decimal", "point"))
    rows = [{"prompt": prompt, "solution": gold} for prompt, gold in golds.items()]
    return gold_errors(GraderSpec(specs, record["threshold"]), context, rows)
