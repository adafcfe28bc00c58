"""Where the rows of a run's problem sets went: what `problems.json` holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlvr_vocab.data.report import LoadReport


@dataclass(frozen=True)
class StageAccount:
    """What became of the rows of a stage's problem set before their prompts were measured.

    Attributes:
        held_out_by_the_run: problems that the run holds out, and the stage's own division of the set does not.
        unusable: problems to train on whose gold answer nothing can be compared with.
    """

    report: LoadReport
    held_out_by_the_run: int
    unusable: int


def problem_account(
    held_out: int, unusable_held_out: int, stages: Sequence[tuple[str, StageAccount, int, int]]
) -> dict[str, Any]:
    """For `problems.json`; what a stage trains on is `usable` without all that is told of it below that.

    Args:
        held_out: problems that the run is measured on.
        unusable_held_out: those that were held out and whose gold answer nothing can be compared with.
        stages: of each its name, its account, how many problems it trains on in the end, and the tokens of the
            longest of their prompts.
    """
    return {
        "held_out": {"measured_on": held_out, "unusable_gold_answers": unusable_held_out},
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
    }
