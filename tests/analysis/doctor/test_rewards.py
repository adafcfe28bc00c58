"""Findings on the scores: groups without spread, formats and penalties, scales, timeouts, skipped rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.record.metrics import RewardFact

Row = dict[str, Any]
Named = Callable[..., list[str]]
NO_SPREAD = {"reward_std": 0.0, "groups/reward_std": 0.0, "frac_reward_zero_std": 1.0}
OF_UPDATES = ("step", "loss", "grad_norm", "learning_rate", "step_time", "weights/moved")
ACCURACY, OWN = RewardFact("accuracy", 1.0, False), RewardFact("own", 1.0, False, "my.py:own")


def of_own(row: Row, reward: float, spread: float) -> Row:
    """The row with a single function of the user's own."""
    plain = {name: value for name, value in row.items() if not name.startswith("rewards/")}
    still = NO_SPREAD if spread == 0 else {"reward_std": spread, "groups/reward_std": 0.9 * spread}
    return {**plain, "reward": reward, "rewards/own/mean": reward, "rewards/own/std": spread, **still}


def scored(name: str, mean: float, std: float) -> Row:
    return {f"rewards/{name}/mean": mean, f"rewards/{name}/std": std}


def test_a_reward_is_not_too_easy_for_having_been_learned(names_of: Named) -> None:
    assert names_of(lambda row: {"reward": 1.0, **NO_SPREAD} if row["step"] > 30 else {}) == []


@pytest.mark.parametrize(("full", "mark"), [(1.0, None), (2.0, None), (10.0, None), (10.0, 10.0)])
def test_a_reward_on_any_scale_may_be_learned(
    full: float, mark: float | None, healthy_rows: list[Row], names_of: Named
) -> None:
    own = replace(OWN, full_mark=mark)
    parts = [min(1.0, 0.3 + 0.7 * row["step"] / 30) for row in healthy_rows]
    spreads = [(part * (1 - part)) ** 0.5 for part in parts]
    grown = [of_own(row, full * part, full * s) for row, part, s in zip(healthy_rows, parts, spreads, strict=True)]
    assert names_of(grown, rewards=(own,)) == []
    penalties = [of_own(row, part - 1, s) for row, part, s in zip(healthy_rows, parts, spreads, strict=True)]
    for given in (None, 0.0):
        assert names_of(penalties, rewards=(replace(own, full_mark=given),)) == []


def test_a_full_mark_says_what_is_too_easy(healthy_rows: list[Row], names_of: Named) -> None:
    rows = [of_own(row, 10.0, 0.0) for row in healthy_rows]
    assert names_of(rows, rewards=(OWN,)) == ["reward_never_varies"]
    marked = names_of(rows, rewards=(replace(OWN, full_mark=10.0),))
    assert marked == ["groups_too_easy", "reward_never_varies"]


def test_a_reward_of_the_problem_alone_never_varies_however_it_is_scaled(
    healthy_rows: list[Row], names_of: Named
) -> None:
    rows = [{**of_own(row, 0.5, 0.5), "groups/reward_std": 0.0, "frac_reward_zero_std": 0.0} for row in healthy_rows]
    assert names_of(rows, rewards=(OWN,)) == ["reward_never_varies"]


def test_a_small_weight_on_a_reward_that_is_met_is_not_drowned(names_of: Named) -> None:
    rewards = (ACCURACY, RewardFact("boxed", 0.1, False))
    assert names_of(scored("boxed", 0.99, 0.1), rewards=rewards) == []


@pytest.mark.parametrize("name", ["no_tags", "xml_penalty", "structure_violations", "style"])
def test_a_penalty_of_0_is_no_format_that_nobody_meets(name: str, names_of: Named) -> None:
    assert names_of(scored(name, 0.0, 0.0)) == []


@pytest.mark.parametrize("name", ["boxed", "xml_format", "my_format"])
def test_a_format_of_0_is_one(name: str, names_of: Named) -> None:
    assert names_of(scored(name, 0.0, 0.0)) == ["format_reward_zero"]
    punished = RewardFact(name, 1.0, False, name, full_mark=0.0)
    assert names_of(scored(name, 0.0, 0.0), rewards=(ACCURACY, punished)) == []


def test_a_prefilled_tag_is_read_from_the_prompts(findings_of: Callable[..., list[Finding]], tmp_path: Path) -> None:
    (tmp_path / "completions").mkdir()
    for ending, said in (("<think>\n", "the chat template writes <think>"), ("assistant\n", "has never written")):
        prompts = pd.DataFrame({"prompt": [f"What?{ending}"] * 4})
        prompts.to_parquet(tmp_path / "completions" / "step_00001.parquet")
        [finding] = findings_of(scored("think_format", 0.0, 0.0))
        assert finding.name == "format_reward_zero" and said in finding.cause


@pytest.mark.parametrize(
    ("metric", "name"),
    [("timeouts", "verifier_timeouts"), ("failures", "rows_skipped"), ("unscored", "rows_skipped")],
)
def test_timeouts_and_failures_are_counted_in_the_steps_that_scored(
    metric: str, name: str, healthy_rows: list[Row], names_of: Named
) -> None:
    rows = [
        {**row, f"rewards/accuracy/{metric}": 3.0} if row["step"] % 4 == 0 else {key: row[key] for key in OF_UPDATES}
        for row in healthy_rows
    ]
    assert names_of(rows, num_iterations=4) == [name]


@pytest.mark.parametrize("metric", ["timeouts", "failures"])
def test_one_accident_is_no_habit_however_few_rows_there_are(
    metric: str, healthy_rows: list[Row], names_of: Named
) -> None:
    rows = [{**row, f"rewards/accuracy/{metric}": float(row["step"] == 10)} for row in healthy_rows[4:15:5]]
    assert len(rows) == 3 and names_of(rows) == []
    assert names_of([{**row, "grad_norm": None} if row["step"] == 10 else row for row in rows]) == []


@pytest.mark.parametrize(("share", "sick"), [(0.02, False), (0.4, True)])
def test_problems_left_out_are_rows_skipped(
    share: float, sick: bool, findings_of: Callable[..., list[Finding]], tmp_path: Path
) -> None:
    account = {"dataset": "x.jsonl", "rows_read": 1000, "left_out": {"no answer": int(1000 * share)}}
    (tmp_path / "problems.json").write_text(json.dumps({"training": [account]}))
    found = findings_of({})
    assert [(each.name, "400 no answer" in each.evidence) for each in found] == [("rows_skipped", True)] * sick
