"""The JSONL file of `rlvr-vocab score`: every row with all scores and reasons."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlvr_vocab.exp.json_file import write_jsonl_whole
from rlvr_vocab.exp.scored_rows import RewardScores, ScoredRows, total_of
from rlvr_vocab.rewards.guard import Mistake
from rlvr_vocab.rewards.turns import turn_text


def write_scores(path: Path, rows: ScoredRows, scores: Sequence[RewardScores]) -> None:
    """One object a row: where it is from, prompt, completion, gold answer, total, and by reward what it gave."""
    write_jsonl_whole(path, (_row(rows, scores, row) for row in range(len(rows))), "out")


def _row(rows: ScoredRows, scores: Sequence[RewardScores], row: int) -> dict[str, Any]:
    known: dict[str, Any] = {**rows.places[row]}
    if rows.prompts is not None:
        known["prompt"] = rows.prompts[row]
    known["completion"] = turn_text(rows.completions[row])
    if "solution" in rows.columns:
        known["solution"] = rows.columns["solution"][row]
    rewards = {each.reward.name: _given(each, row) for each in scores}
    return {**known, "total": total_of(scores, row), "rewards": rewards}


def _given(each: RewardScores, row: int) -> dict[str, Any]:
    mark = each.marks[row]
    given = {"score": mark.score, "reason": mark.reason, "failed": isinstance(mark, Mistake)}
    if each.verdicts is None:
        return given
    verdict = each.verdicts[row]
    return {**given, "gold": verdict.gold, "answer": verdict.answer, "milliseconds": round(verdict.milliseconds, 3)}
