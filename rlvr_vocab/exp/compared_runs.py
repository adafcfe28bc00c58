"""From the folders of runs to the arms of a comparison; imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr_vocab.analysis.compare.stories import ArmStory, KeyDifference, RunStory, one_line
from rlvr_vocab.analysis.completions import CompletionFiles
from rlvr_vocab.analysis.record import divided, read_metrics
from rlvr_vocab.errors import UserError
from rlvr_vocab.exp.arm_division import Division, divide
from rlvr_vocab.exp.compared_results import answers_in, asked_of_results, results_file
from rlvr_vocab.exp.from_config import read
from rlvr_vocab.exp.look_sections import CompareSettings
from rlvr_vocab.exp.recorded_config import read_recorded
from rlvr_vocab.exp.run_json import read_record
from rlvr_vocab.secret_words import MASK, is_secret
from rlvr_vocab.vocab.run_places import COMPLETIONS, ENVIRONMENT, EVALUATION_RESULTS, METRICS, SUMMARY
from rlvr_vocab.vocab.run_records import RunRecords

# A longer value does not fit into a sentence or beside a picture: its arm gets a number.
_LONGEST_VALUE = 40


@dataclass(frozen=True)
class ComparedArms:
    """The arms, the baseline first; the key under test, and what else differs."""

    key: str
    arms: tuple[ArmStory, ...]
    differences: tuple[KeyDifference, ...]


def compared_arms(settings: CompareSettings) -> ComparedArms:
    """Read the runs and divide them into arms.

    Raises:
        UserError: a run has no results, two are the same, or they do not divide into arms.
    """
    _check_told_apart(settings.runs)
    configs = [read_recorded(folder, resolve=True) for folder in settings.runs]
    stories = [
        _story(folder, config, settings.evaluation) for folder, config in zip(settings.runs, configs, strict=True)
    ]
    division = divide(configs, settings.key, settings.baseline)
    shown = [_told(division.key, value) for value, _ in division.arms]
    arms = tuple(
        ArmStory(name, value, tuple(stories[number] for number in members))
        for name, value, (_, members) in zip(_names(division.key, shown), shown, division.arms, strict=True)
    )
    return ComparedArms(division.key, arms, _differences(division))


def _differences(division: Division) -> tuple[KeyDifference, ...]:
    order = [number for _, members in division.arms for number in members]
    return tuple(
        KeyDifference(key, tuple(_told(key, values[number]) for number in order))
        for key, values in division.others.items()
    )


def _told(key: str, value: str) -> str:
    """A value as it may be shown: no secret, and nothing that a terminal obeys."""
    return MASK if is_secret(key, value) else one_line(value)


def _names(key: str, values: Sequence[str]) -> list[str]:
    """Of the arms; where a value is long, all have numbers."""
    short = key.rpartition(".")[2]
    if max(map(len, values)) > _LONGEST_VALUE or len(set(values)) < len(values):
        return [f"{short} #{number}" for number in range(1, len(values) + 1)]
    return [f"{short}={value}" for value in values]


def _check_told_apart(folders: Sequence[Path]) -> None:
    seen: dict[Path, Path] = {}
    for folder in folders:
        if folder.resolve() in seen:
            raise UserError(f"runs: {folder} is given twice")
        seen[folder.resolve()] = folder


def _story(folder: Path, config: Mapping[str, Any], evaluation: str | None) -> RunStory:
    rows, evaluations = divided(read_metrics(folder / METRICS))
    training, results, records = config["training"], results_file(folder, evaluation), RunRecords.of(folder)
    changed = records.problem(results)
    if changed is not None:
        raise UserError(f"runs: {folder}: {changed}; its own train command measures it again")
    return RunStory(
        folder=str(folder),
        seed=_seed(folder, config),
        asked=asked_of_results(results),
        from_evaluate=results.name == EVALUATION_RESULTS,
        answers=answers_in(results),
        rows=rows,
        evaluations=evaluations,
        summary=read_record(folder, SUMMARY),
        environment=read_record(folder, ENVIRONMENT),
        damage=tuple(records.damage()),
        completions=CompletionFiles(folder / COMPLETIONS),
        selects_best=bool(training.get("load_best_model_at_end")) or training.get("save_strategy") == "best",
    )


def _seed(folder: Path, config: Mapping[str, Any]) -> int | str:
    """The seed of the run, with those that were set apart from it."""
    if config.get("seed") is None:
        raise UserError(f"runs: {folder}/config.yaml names no seed, by which the runs of an arm are told apart")
    apart = [f"{name} {config['training'][name]}" for name in ("seed", "data_seed") if config["training"].get(name)]
    seed: int = read(int, config["seed"], "seed")
    return ", ".join([str(seed), *apart]) if apart else seed
