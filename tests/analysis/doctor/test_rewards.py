"""Findings on the scores: groups without spread, formats and penalties, scales, timeouts, skipped rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlvr_vocab.analysis.doctor.diagnose import Doctor
from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.record.metrics import RewardFact, RunFacts

Row = dict[str, Any]
Named = Callable[..., list[str]]
NO_SPREAD = {"reward_std": 0.0, "groups/reward_std": 0.0, "frac_reward_zero_std": 1.0}
OF_UPDATES = ("step", "loss", "grad_norm", "learning_rate", "step_time", "weights/moved")
ACCURACY, OWN = RewardFact("accuracy", 1.0, False), RewardFact("own", 1.0, False)


def of_own(row: Row, reward: float, spread: float) -> Row:
    """The row with a single function of the user's own."""
    plain = {name: value for name, value in row.items() if not name.startswith("rewards/")}
    still = NO_SPREAD if spread == 0 else {"reward_std": spread, "groups/reward_std": 0.9 * spread}
    return {**plain, "reward": reward, "rewards/own/mean": reward, "rewards/own/std": spread, **still}


def scored(name: str, mean: float, std: float) -> Row:
    return {f"rewards/{name}/mean": mean, f"rewards/{name}/std": std}


def test_a_reward_is_not_too_easy_for_having_been_learned(names_of: Named) -> None:
    assert names_of(lambda row: {"reward": 1.0, **NO_SPREAD} if row["step"] > 30 else {}) == []


Rates = Callable[[int, np.random.Generator], np.ndarray]  # of success, for each group of a step
GROUPS = 8


def drawn(rates: Rates, healthy_rows: list[Row], *, count: int = 200, seed: int = 0, hidden: str = "") -> list[Row]:
    """Rows in which the rewards are drawn at these rates."""
    luck, rows = np.random.default_rng(seed), []
    for step in range(1, count + 1):
        rewards = (luck.random((GROUPS, 8)) < rates(step, luck)[:, None]).astype(float)
        within = rewards.std(axis=1, ddof=1)
        row = {
            **healthy_rows[step % len(healthy_rows)],
            "step": step,
            "learning_rate": 1e-3,
            "reward": rewards.mean(),
            "reward_std": rewards.std(ddof=1),
            "groups/reward_std": within.mean(),
            "frac_reward_zero_std": (within == 0).mean(),
            **scored("accuracy", rewards.mean(), rewards.std(ddof=1)),
        }
        rows.append({name: value for name, value in row.items() if name != hidden})
    return rows


@pytest.mark.parametrize(
    ("lost_at", "how", "hidden"),
    [(40, "abruptly", ""), (120, "gradually", "frac_reward_zero_std"), (180, "with noise", "")],
)
def test_a_spread_that_falls_away_is_told_within_twenty_steps_and_not_before(
    lost_at: int, how: str, hidden: str, healthy_rows: list[Row], facts: RunFacts
) -> None:
    def rates(step: int, luck: np.random.Generator) -> np.ndarray:
        right = 0.3 + 0.3 * min(1.0, step / lost_at)
        taught = luck.beta(2 * right, 2 - 2 * right, GROUPS)
        alike = min(1.0, max(0.0, (step - lost_at) / (10 if how == "gradually" else 1)))
        settled = luck.random(GROUPS) < alike * (0.97 if how == "with noise" else 1.0)
        return np.where(settled, luck.random(GROUPS) < 0.6, taught)

    doctor, told = Doctor(replace(facts, completions_per_step=8 * GROUPS)), {}
    for row in drawn(rates, healthy_rows, hidden=hidden):
        told.update({finding.name: row["step"] for finding in doctor.look(row)})
    assert list(told) == ["spread_lost"] and lost_at < told["spread_lost"] <= lost_at + 20


@pytest.mark.parametrize(("groups", "seed"), [(2, 0), (2, 1), (8, 2)])
@pytest.mark.parametrize(
    "rates",
    [
        pytest.param(lambda step, luck: np.full(8, min(0.99, 0.3 + 0.7 * step / 60)), id="learned, and then at rest"),
        pytest.param(lambda step, luck: luck.beta(2 * (a := 0.3 + 0.0034 * step), 2 - 2 * a, 8), id="learned slowly"),
        pytest.param(lambda step, luck: luck.beta(1.2, 0.8, 8), id="nothing but noise"),
    ],
)
def test_a_spread_that_falls_as_the_problems_are_learned_is_healthy_wherever_the_run_ends(
    rates: Rates, seed: int, groups: int, healthy_rows: list[Row], facts: RunFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.GROUPS", groups)
    doctor, told = Doctor(replace(facts, completions_per_step=8 * groups)), set()
    for row in drawn(lambda step, luck: rates(step, luck)[:groups], healthy_rows, seed=seed):
        told |= {finding.name for finding in doctor.look(row)} - {"reward_flat"}  # noise alone is flat
    assert told == set()


@pytest.mark.parametrize(("full", "mark"), [(2.0, None), (10.0, 10.0)])
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


def test_a_full_mark_says_what_is_too_easy(healthy_rows: list[Row], findings_of: Callable[..., list[Finding]]) -> None:
    rows = [of_own(row, 10.0, 0.0) for row in healthy_rows]
    for full_mark, title in ((None, "never varies"), (10.0, "too easy")):
        [found] = findings_of(rows, rewards=(replace(OWN, full_mark=full_mark),))
        assert found.name == "no_group_differs" and title in found.title


def test_a_reward_of_the_problem_alone_never_varies_however_it_is_scaled(
    healthy_rows: list[Row], names_of: Named
) -> None:
    rows = [{**of_own(row, 0.5, 0.5), "groups/reward_std": 0.0, "frac_reward_zero_std": 0.0} for row in healthy_rows]
    assert names_of(rows, rewards=(OWN,)) == ["no_group_differs"]


@pytest.mark.parametrize(
    ("name", "full_mark", "sick"),
    [
        ("boxed", None, True),
        ("my_format", None, True),
        ("my_format", 0.0, False),
        ("xml_penalty", None, False),
        ("no_tags", None, False),
        ("style", None, False),
    ],
)
def test_a_format_of_0_is_one_that_nobody_meets_and_a_penalty_of_0_is_none(
    name: str, full_mark: float | None, sick: bool, names_of: Named
) -> None:
    rewards = (ACCURACY, RewardFact(name, 0.1, False, full_mark))
    assert names_of(scored(name, 0.0, 0.0), rewards=rewards) == ["format_reward_zero"] * sick


def test_timeouts_are_counted_in_the_steps_that_scored(healthy_rows: list[Row], names_of: Named) -> None:
    rows = [
        {**row, "rewards/accuracy/timeouts": 3.0} if row["step"] % 4 == 0 else {key: row[key] for key in OF_UPDATES}
        for row in healthy_rows
    ]
    assert names_of(rows) == ["rows_skipped"]


def test_one_accident_is_no_habit_however_few_rows_there_are(healthy_rows: list[Row], names_of: Named) -> None:
    rows = [{**row, "rewards/accuracy/failures": float(row["step"] == 10)} for row in healthy_rows[4:15:5]]
    assert len(rows) == 3 and names_of(rows) == []
    assert names_of([{**row, "grad_norm": None} if row["step"] == 10 else row for row in rows]) == []
