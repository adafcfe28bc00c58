"""`problems.json`: where the rows of a run's problem sets went, and whether they are still divided in the same way."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from rlvr_vocab.atomic_file import json_text, read_json, write_whole
from rlvr_vocab.config.problem_source import problem_source, problem_split
from rlvr_vocab.config.sections import DatasetSettings, RunSettings
from rlvr_vocab.config.values import read
from rlvr_vocab.counted import counted
from rlvr_vocab.data.load import DividedProblems, LoadReport, build_report, read_problems
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.files import INITIAL_MODEL, PROBLEMS, read_record
from rlvr_vocab.runs.record import RunOfCheckpoint

# The counts that the division of the problems decides; a run goes on with the same.
_DIVISION = ("usable", "held_out", "beyond_max_eval_samples", "same_problem_held_out", "beyond_max_train_samples")
_FINGERPRINT = "sha256"


@dataclass(frozen=True)
class StageAccount:
    """What became of the rows of a stage's problem set.

    Attributes:
        held_out_by_the_run: problems that the run holds out, and the stage's own division of the set does not.
        fingerprint: of the problems that are left to train on, unusable ones included.
        unusable: problems to train on whose gold answer nothing can be compared with.
        trained_on: problems whose prompts fit; 0 as long as they were not measured.
        longest_prompt: of these, in tokens.
    """

    name: str
    report: LoadReport
    held_out_by_the_run: int
    fingerprint: str
    unusable: int = 0
    trained_on: int = 0
    longest_prompt: int = 0

    def counts(self) -> dict[str, Any]:
        """For `problems.json`; `trained_on` is `usable` without all the counts between the two."""
        report = self.report
        reserved = report.eval_rows + report.unmeasured + report.held_out_removed
        fitting = report.train_rows - self.held_out_by_the_run - self.unusable
        return {
            **({"stage": self.name} if self.name else {}),
            "dataset": report.source,
            "rows_read": report.rows_read,
            "left_out": dict(report.dropped),
            "usable": report.rows_kept,
            "held_out": report.eval_rows,
            "beyond_max_eval_samples": report.unmeasured,
            "same_problem_held_out": report.held_out_removed + self.held_out_by_the_run,
            "beyond_max_train_samples": report.rows_kept - reserved - report.train_rows,
            "unusable_gold_answers": self.unusable,
            "prompts_too_long": fitting - self.trained_on,
            "trained_on": self.trained_on,
            "longest_prompt": self.longest_prompt,
            "repeated_problems": report.duplicates,
            _FINGERPRINT: self.fingerprint,
        }


def problem_account(
    held_out: int, fingerprint: str, unusable_held_out: int, stages: Sequence[StageAccount]
) -> dict[str, Any]:
    """The content of `problems.json`.

    Args:
        held_out: problems that the run is measured on.
        fingerprint: of these.
        unusable_held_out: those that were held out and whose gold answer nothing can be compared with.
    """
    return {
        "held_out": {"measured_on": held_out, "unusable_gold_answers": unusable_held_out, _FINGERPRINT: fingerprint},
        "training": [stage.counts() for stage in stages],
    }


def write_drawn(run_folder: Path, drawn: Sequence[Mapping[str, Any] | None]) -> None:
    """Add to `problems.json` what each stage that chose its problems has drawn, and what it has passed over."""
    if not any(drawn):
        return
    account = read_json(run_folder / PROBLEMS)
    for counts, found in zip(account["training"], drawn, strict=True):
        if found is not None:
            counts["drawn"] = found
    write_whole(run_folder / PROBLEMS, json_text(account))


def fingerprint_of(problems: Iterable[Sequence[Any]]) -> str:
    """SHA-256 of problems, their solutions and whatever more decides, in their order."""
    return hashlib.sha256(json.dumps(list(problems)).encode()).hexdigest()


def check_same_division(settings: RunSettings, account: Mapping[str, Any], console: Console) -> None:
    """Refuse to go on with other problems than a run began with: it would be measured on what it has trained on.

    Args:
        account: of the problems as they are divided now.

    Raises:
        UserError: `problems.json` holds another division.
    """
    path = settings.output_dir / PROBLEMS
    if settings.overwrite or not (settings.output_dir / INITIAL_MODEL).exists():
        return
    try:
        changes = _changed_division(read_json(path), account)
    except (OSError, UserError, KeyError, TypeError) as error:
        console.print(
            f"warning: {path} cannot be read ({error}): whether the run goes on with the problems that it began "
            "with cannot be told; it is written again",
            style="yellow",
            markup=False,
        )
        return
    if changes:
        raise UserError(
            f"output_dir={settings.output_dir}: the problems are divided otherwise than when this run began "
            f"({'; '.join(changes)}): give it back its problem set, or go on with the version of rlvr_vocab that began "
            "it, or choose another exp_name or output_dir, or add overwrite=true"
        )


def _changed_division(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Sentences on how the division of the problems differs from a `problems.json`; none where it is the same.

    One that is older holds no fingerprints; its counts tell then.
    """
    changes = list(_changes("held out", recorded["held_out"], now["held_out"], ["measured_on"]))
    for there, here in zip(recorded["training"], now["training"], strict=False):
        changes += _changes(here.get("stage", "training"), there, here, _DIVISION)
    return changes


def _changes(where: str, there: Mapping[str, Any], here: Mapping[str, Any], names: Sequence[str]) -> Iterator[str]:
    different = [name for name in names if there.get(name, here[name]) != here[name]]
    yield from (f"{where}: {name} {there[name]:,} then, {here[name]:,} now" for name in different)
    if not different and there.get(_FINGERPRINT, here[_FINGERPRINT]) != here[_FINGERPRINT]:
        yield f"{where}: as many problems, but others"


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
        return f"warning: whether the run in {run.folder} trained on these problems cannot be told: {error}"
    if changes:
        return (
            f"warning: the problems of the run in {run.folder} are divided otherwise now than when it was trained "
            f"({'; '.join(changes)}): it may have trained on these problems"
        )
    known = sum(key in trained for key in keys)
    if known:
        return f"warning: the run in {run.folder} trained on {known:,} of these {counted(len(keys), 'problem')}"
    if held_out.issuperset(keys):
        return f"problems held out by the run in {run.folder}"
    return f"problems of {dataset}; the run in {run.folder} trained on none of them"


def _recorded_division(run: RunOfCheckpoint) -> tuple[frozenset[str], set[str], list[str]]:
    """Keys of the problems that a run held out, keys of those it trained on, and how that differs from its record."""
    own = _divided(run.dataset, run)
    reserved_keys = frozenset(problem.key for problem in own.reserved)
    trained = {problem.key for problem in own.trained} if run.warmed_up else set()
    stages = []
    for name, dataset in run.training_sets:
        divided = own if dataset == run.dataset else _divided(dataset, run)
        allowed = [problem for problem in divided.trained if problem.key not in reserved_keys]
        trained.update(problem.key for problem in allowed)
        held_out = len(divided.parts.train) - len(allowed)
        fingerprint = fingerprint_of(problem.fingerprinted for problem in allowed)
        stages.append(StageAccount(name, build_report(divided), held_out, fingerprint))
    assert run.folder is not None
    recorded = read_record(run.folder, PROBLEMS)
    if recorded is None:
        return reserved_keys, trained, []
    now = {**problem_account(0, "", 0, stages), "held_out": recorded["held_out"]}
    return reserved_keys, trained, _changed_division(recorded, now)


def _divided(dataset: Any, run: RunOfCheckpoint) -> DividedProblems:
    assert run.seed is not None
    settings = read(DatasetSettings, dataset, f"dataset in {run.folder}")
    return read_problems(problem_source(settings), problem_split(settings, run.seed))
