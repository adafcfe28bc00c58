"""Healthy runs of a few steps, completions, tokens or problems: what luck makes of so few has no cause."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlvr_vocab.analysis.doctor.diagnose import diagnose
from rlvr_vocab.record.metrics import RunFacts, RunRecord

Row = dict[str, Any]


@pytest.fixture
def names_of(facts: RunFacts, tmp_path: Path) -> Callable[..., list[str]]:
    def found(rows: list[Row], evaluations: Any = (), summary: Row | None = None, **changed: Any) -> list[str]:
        record = RunRecord(tmp_path, replace(facts, **changed), tuple(rows), tuple(evaluations), summary)
        return [finding.name for finding in diagnose(record)]

    return found


@pytest.mark.parametrize(("thinks", "length"), [(0.05, 6), (0.1, 4), (0.3, 2), (1.0, 2)])
@pytest.mark.parametrize("used", [0.5, 0.9, 1.0])
def test_little_thinking_is_judged_by_the_tokens_that_could_be_either(
    thinks: float, length: int, used: float, healthy_rows: list[Row], names_of: Any
) -> None:
    """`thinks` of the completions think, `length` tokens with the closing one, of which `used` of the others copies."""
    thought = {
        "thinking/mean_length": thinks * length,
        "thinking/closed": thinks,
        "thinking/reasoning_share": used * (length - 1) / length,
        "answering/mean_length": 12.0,
    }
    rows = [{**row, **thought} for row in healthy_rows]
    copied = {"reasoning_copies": 1.0, "completions_per_step": 128}
    assert names_of(rows, **copied) == ["reasoning_tokens_everywhere"] * (used == 1.0)
    few = {**copied, "completions_per_step": 8}
    enough = thinks == 1.0  # 13 steps of 8 completions, one token each that could be either
    assert names_of(rows[:13], **few) == ["reasoning_tokens_everywhere"] * (used == 1.0 and enough)


def test_copies_of_a_few_tokens_that_do_not_occur_have_not_been_given_up(
    healthy_rows: list[Row], facts: RunFacts, tmp_path: Path
) -> None:
    rows = tuple({**row, "thinking/reasoning_share": 0.0} for row in healthy_rows)
    few = replace(facts, reasoning_copies=0.1)
    [finding] = diagnose(RunRecord(tmp_path, few, rows))
    assert "hardly occur" in finding.cause and "reasoning_vocab_size=full" in finding.remedy[0]
    assert diagnose(RunRecord(tmp_path, replace(few, reasoning_copies=1e-4), rows)) == []


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("logging_steps", [1, 5])
@pytest.mark.parametrize("right", [0.05, 0.3, 0.6])
def test_short_healthy_runs_of_small_batches_have_no_findings(
    right: float, logging_steps: int, seed: int, healthy_rows: list[Row], names_of: Any
) -> None:
    """Two groups of four at a step, each right with its own chance, for 2 to 12 steps."""
    luck, rows = random.Random(seed), []
    for row in healthy_rows[:12]:
        groups = [[luck.random() < right for _ in range(4)] for _ in range(2)]
        flat = [float(each) for group in groups for each in group]
        mean = sum(flat) / 8
        spread = (sum((each - mean) ** 2 for each in flat) / 7) ** 0.5
        alike = sum(len(set(group)) == 1 for group in groups) / 2
        scores = {"reward": mean, "reward_std": spread, "frac_reward_zero_std": alike, "groups/reward_std": spread}
        means = {"rewards/accuracy/mean": mean, "rewards/accuracy/std": spread}
        cut = {"completions/clipped_ratio": sum(luck.random() < 0.2 for _ in range(8)) / 8}
        rows.append({**row, **scores, **means, **cut})
    for count in range(1, 13):
        parts = [rows[start : min(start + logging_steps, count)] for start in range(0, count, logging_steps)]
        logged = [
            {name: statistics.fmean(row[name] for row in part) for name in part[0] if name != "kl"} for part in parts
        ]
        for row, part in zip(logged, parts, strict=True):
            row["step"] = part[-1]["step"]
        assert names_of(logged, num_generations=4, completions_per_step=8) == []


@pytest.mark.parametrize("metric", ["timeouts", "failures"])
def test_one_accident_is_no_habit_however_few_rows_there_are(
    metric: str, healthy_rows: list[Row], names_of: Any
) -> None:
    rows = [{**row, f"rewards/accuracy/{metric}": float(row["step"] == 10)} for row in healthy_rows[4:15:5]]
    assert len(rows) == 3 and names_of(rows) == []
    assert names_of([{**row, "grad_norm": None} if row["step"] == 10 else row for row in rows]) == []


def test_the_entropy_of_hardly_any_tokens_is_none(healthy_rows: list[Row], names_of: Any) -> None:
    luck = random.Random(0)
    rows = [
        {
            **row,
            "thinking/mean_length": 0.1,
            "thinking/closed": 0.05,
            "entropy/thinking": luck.choice((0.0, 0.001, 3.0)),
        }
        for row in healthy_rows[:14]
    ]
    assert names_of(rows) == []


@pytest.mark.parametrize(
    ("problems", "before", "after", "sick"), [(1, 1.0, 0.0, False), (2, 1.0, 0.0, False), (50, 0.6, 0.2, True)]
)
def test_a_few_held_out_problems_tell_little(
    problems: int, before: float, after: float, sick: bool, healthy_rows: list[Row], names_of: Any
) -> None:
    summary = {"accuracy_before": before, "accuracy_after": after, "held_out_problems": problems}
    assert names_of(healthy_rows, (), summary) == ["held_out_accuracy_falls"] * sick


def test_a_reward_that_rises_by_luck_has_not_risen(healthy_rows: list[Row], names_of: Any) -> None:
    rows = [{**row, "reward": 0.4 + 0.05 * (row["step"] % 2) + 0.004 * row["step"]} for row in healthy_rows[:12]]
    summary = {"accuracy_before": 0.52, "accuracy_after": 0.2, "held_out_problems": 100}
    assert names_of(rows, (), summary) == []


def test_seconds_without_their_parts_blame_no_part(healthy_rows: list[Row], names_of: Any) -> None:
    rows = [{**row, "step_time": 1.0 if row["step"] < 30 else 9.0} for row in healthy_rows]
    assert names_of(rows) == ["steps_slow"]
    whole = [{key: value for key, value in row.items() if not key.startswith("time/")} for row in rows]
    assert names_of(whole) == []
