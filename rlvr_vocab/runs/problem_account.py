"""Where the rows of a run's problem sets went, and how they were divided: what `problems.json` holds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr_vocab.data.load import LoadReport

# What the division of the problems decides, in problems.json; a run goes on with the same.
DIVIDED = ("usable", "held_out", "beyond_max_eval_samples", "same_problem_held_out", "beyond_max_train_samples")
FINGERPRINT = "sha256"


@dataclass(frozen=True)
class StageAccount:
    """What became of the rows of a stage's problem set before their prompts were measured.

    Attributes:
        held_out_by_the_run: problems that the run holds out, and the stage's own division of the set does not.
        fingerprint: of the problems that are left to train on, unusable ones included.
        unusable: problems to train on whose gold answer nothing can be compared with.
    """

    report: LoadReport
    held_out_by_the_run: int
    fingerprint: str
    unusable: int = 0


def problem_account(
    held_out: int, fingerprint: str, unusable_held_out: int, stages: Sequence[tuple[str, StageAccount, int, int]]
) -> dict[str, Any]:
    """For `problems.json`; what a stage trains on is `usable` without all that is told of it below that.

    Args:
        held_out: problems that the run is measured on.
        fingerprint: of these.
        unusable_held_out: those that were held out and whose gold answer nothing can be compared with.
        stages: of each its name, its account, how many problems it trains on in the end, and the tokens of the
            longest of their prompts.
    """
    return {
        "held_out": {"measured_on": held_out, "unusable_gold_answers": unusable_held_out, FINGERPRINT: fingerprint},
        "training": [_of_a_stage(*stage) for stage in stages],
    }


def _of_a_stage(name: str, account: StageAccount, trained_on: int, longest_prompt: int) -> dict[str, Any]:
    report = account.report
    reserved = report.eval_rows + report.unmeasured + report.held_out_removed
    fitting = report.train_rows - account.held_out_by_the_run - account.unusable
    return {
        **({"stage": name} if name else {}),
        "dataset": report.source,
        "rows_read": report.rows_read,
        "left_out": dict(report.dropped),
        "usable": report.rows_kept,
        "held_out": report.eval_rows,
        "beyond_max_eval_samples": report.unmeasured,
        "same_problem_held_out": report.held_out_removed + account.held_out_by_the_run,
        "beyond_max_train_samples": report.rows_kept - reserved - report.train_rows,
        "unusable_gold_answers": account.unusable,
        "prompts_too_long": fitting - trained_on,
        "trained_on": trained_on,
        "longest_prompt": longest_prompt,
        "repeated_problems": report.duplicates,
        FINGERPRINT: account.fingerprint,
    }


def fingerprint_of(problems: Iterable[Sequence[Any]]) -> str:
    """Of problems, their solutions and whatever more decides, in their order."""
    return hashlib.sha256(json.dumps(list(problems)).encode()).hexdigest()


def changed_division(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """In words, what of the division of the problems is otherwise than in a `problems.json`; none for the same.

    One that is older holds no fingerprints; its counts tell then.
    """
    changes = list(_changes("held out", recorded["held_out"], now["held_out"], ["measured_on"]))
    for there, here in zip(recorded["training"], now["training"], strict=False):
        changes += _changes(here.get("stage", "training"), there, here, DIVIDED)
    return changes


def _changes(where: str, there: Mapping[str, Any], here: Mapping[str, Any], counts: Sequence[str]) -> Iterator[str]:
    different = [name for name in counts if there.get(name, here[name]) != here[name]]
    yield from (f"{where}: {name} {there[name]:,} then, {here[name]:,} now" for name in different)
    if not different and there.get(FINGERPRINT, here[FINGERPRINT]) != here[FINGERPRINT]:
        yield f"{where}: as many problems, but others"
