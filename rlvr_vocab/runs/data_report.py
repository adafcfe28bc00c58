"""`problems.json`: fingerprints of the problems that a run is measured on and trains on, and what follows from them.

A run goes on with the problems that it began with, and an evaluation on problems that a run trained on is warned of.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rlvr_vocab.config.sections import DatasetSettings, RunSettings, problem_source, problem_split
from rlvr_vocab.config.values import read
from rlvr_vocab.data.load import DividedProblems, read_problems
from rlvr_vocab.errors import UserError
from rlvr_vocab.files import read_json_if_there
from rlvr_vocab.record.files import INITIAL_MODEL, PROBLEMS
from rlvr_vocab.runs.record import RunOfCheckpoint
from rlvr_vocab.text import pluralize

_FINGERPRINT = "sha256"
_KINDS = {"held_out": {_FINGERPRINT: str}, "training": [{_FINGERPRINT: str}]}
TrainingSet = tuple[str, str, str]  # name of the stage, problem set, fingerprint, unusable gold answers included


def data_report(
    held_out: Sequence[Sequence[Any]], training_sets: Sequence[TrainingSet], num_fitting: Sequence[int | None]
) -> dict[str, Any]:
    """The content of `problems.json`; `num_fitting` are the problems of each stage whose prompts fit, where counted."""
    training = [
        {
            **({"stage": name} if name else {}),
            "dataset": dataset,
            **({} if count is None else {"trained_on": count}),
            _FINGERPRINT: fingerprint,
        }
        for (name, dataset, fingerprint), count in zip(training_sets, num_fitting, strict=True)
    ]
    return {"held_out": {"measured_on": len(held_out), _FINGERPRINT: fingerprint_of(held_out)}, "training": training}


def fingerprint_of(problems: Iterable[Sequence[Any]]) -> str:
    """SHA-256 of problems, their solutions and further columns, in their order."""
    return hashlib.sha256(json.dumps(list(problems)).encode()).hexdigest()


def check_same_problems(settings: RunSettings, report: Mapping[str, Any]) -> None:
    """Refuse to resume with other problems: a run would be measured on problems that it has trained on.

    Raises:
        UserError: `problems.json` is damaged, or holds other fingerprints than `report`.
    """
    path = settings.output_dir / PROBLEMS
    if settings.overwrite or not (settings.output_dir / INITIAL_MODEL).exists():
        return
    recorded = read_json_if_there(path, _KINDS)  # written before the first step
    changes = [] if recorded is None else _changes(recorded, report)
    if changes:
        raise UserError(
            f"output_dir={settings.output_dir}: the problems are divided otherwise than when this run began "
            f"({'; '.join(changes)}): give it back its problem set, or go on with the version of rlvr_vocab that began "
            "it, or choose another exp_name or output_dir, or add overwrite=true"
        )


def _changes(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The parts whose fingerprints differ."""
    parts = [("held out", recorded["held_out"], now["held_out"])]
    parts += [
        (here.get("stage", "training"), there, here)
        for there, here in zip(recorded["training"], now["training"], strict=False)
    ]
    return [f"{where}: other problems" for where, there, here in parts if there[_FINGERPRINT] != here[_FINGERPRINT]]


def problems_line(dataset: str, keys: Collection[str], run: RunOfCheckpoint) -> str:
    """A line on the problems that an evaluation measures on; a warning where the run may have trained on them.

    Args:
        dataset: its name.
        keys: of the problems that are measured on (`problem_key`).
    """
    if run.folder is None:
        return f"problems of {dataset}; the checkpoint is in no run's folder"
    try:
        held_out, trained, changes = _recorded_division(run)
    except UserError as error:
        return f"warning: whether the run in {run.folder} trained on these problems is not known: {error}"
    if changes:
        return (
            f"warning: the problems of the run in {run.folder} are divided otherwise now than when it was trained "
            f"({'; '.join(changes)}): it may have trained on these problems"
        )
    known = sum(key in trained for key in keys)
    if known:
        return f"warning: the run in {run.folder} trained on {known:,} of these {pluralize(len(keys), 'problem')}"
    if held_out.issuperset(keys):
        return f"problems held out by the run in {run.folder}"
    return f"problems of {dataset}; the run in {run.folder} trained on none of them"


def _recorded_division(run: RunOfCheckpoint) -> tuple[frozenset[str], set[str], list[str]]:
    """Keys of the problems that a run held out, keys of those it trained on, and what differs from its record."""
    own = _divided(run.dataset, run)
    reserved_keys = frozenset(problem.key for problem in own.reserved)
    trained = {problem.key for problem in own.trained} if run.warmed_up else set()
    stages = []
    for name, dataset in run.training_sets:
        divided = own if dataset == run.dataset else _divided(dataset, run)
        allowed = [problem for problem in divided.trained if problem.key not in reserved_keys]
        trained.update(problem.key for problem in allowed)
        stages.append((name, "", fingerprint_of(problem.fingerprinted for problem in allowed)))
    assert run.folder is not None
    recorded = read_json_if_there(run.folder / PROBLEMS, _KINDS)
    if recorded is None:
        return reserved_keys, trained, []
    now = {**data_report([], stages, [None] * len(stages)), "held_out": recorded["held_out"]}
    return reserved_keys, trained, _changes(recorded, now)


def _divided(dataset: Any, run: RunOfCheckpoint) -> DividedProblems:
    assert run.seed is not None
    settings = read(DatasetSettings, dataset, f"dataset in {run.folder}")
    return read_problems(problem_source(settings), problem_split(settings, run.seed))
