"""Findings on what is learned: rewards that rest, fall, or rise without held-out accuracy."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlvr_vocab.analysis.doctor.diagnose import Doctor, diagnose
from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.record.metrics import RewardFact, RunFacts, RunRecord
from rlvr_vocab.rewards.adaptive import Adaptation, AdaptiveWeight

Row = dict[str, Any]
Named = Callable[..., list[str]]
NO_SPREAD = {"reward_std": 0.0, "groups/reward_std": 0.0, "frac_reward_zero_std": 1.0}


@pytest.mark.parametrize("until", [2, 5, 20])
def test_a_reward_that_is_gone_at_once_has_collapsed_and_nothing_else(
    until: int, findings_of: Callable[..., list[Finding]]
) -> None:
    lost = {"completions/clipped_ratio": 1.0, "thinking/closed": 0.0, "answering/mean_length": 0.0}
    lost |= {"reward": 0.0, **NO_SPREAD, "kl": 1.2, "completions/duplicates": 0.87}
    [finding] = findings_of(lambda row: {"reward": 0.45 - 0.05 * (row["step"] % 2)} if row["step"] <= until else lost)
    assert finding.name == "reward_collapsed" and finding.step is not None and finding.step <= until + 12
    assert "training.learning_rate" in finding.remedy


def test_a_lucky_beginning_is_no_collapse(names_of: Named) -> None:
    for seed in range(20):
        luck = random.Random(seed)
        names = names_of(lambda row, luck=luck: {"reward": sum(luck.random() < 0.35 for _ in range(16)) / 16})
        assert "reward_collapsed" not in names


def test_a_rest_is_told_and_taken_back(healthy_rows: list[Row], facts: RunFacts, tmp_path: Path) -> None:
    def reward(number: int) -> float:
        return 0.3 + 0.01 * (number % 3) + 0.005 * max(0, number - 50)

    rows = [
        {**healthy_rows[number % 60], "step": number + 1, "learning_rate": 1e-4, "reward": reward(number)}
        for number in range(100)
    ]
    doctor = Doctor(facts)
    assert [finding.name for row in rows for finding in doctor.look(row)] == ["reward_flat"]
    assert doctor.findings() == diagnose(RunRecord(tmp_path, facts, tuple(rows))) == []


def test_a_reward_may_rest_while_the_learning_rate_rises(names_of: Named) -> None:
    assert names_of(lambda row: {"reward": 0.3 + 0.01 * (row["step"] % 3), "learning_rate": 1e-5 * row["step"]}) == []


def test_a_weight_that_falls_by_itself_is_no_lost_reward(healthy_rows: list[Row], names_of: Named) -> None:
    rewards = (RewardFact("accuracy", 1.0, True), RewardFact("boxed", 0.2, False))
    weight, luck, rows = AdaptiveWeight(1.0, 1.0, Adaptation(window=10)), random.Random(0), []
    for number in range(200):
        right = min(0.9, 0.3 + 0.01 * number) + luck.uniform(-0.02, 0.02)
        scores = {"rewards/accuracy/mean": right, "rewards/boxed/mean": 0.9, "rewards/boxed/std": 0.3}
        logged = {"reward": weight.value * right + 0.18, "rewards/accuracy/weight": weight.value}
        rows.append({**healthy_rows[number % 60], "step": number + 1, "learning_rate": 1e-4, **scores, **logged})
        share = round(100 * right)
        weight.observe([1.0] * share + [0.0] * (100 - share))
    assert weight.value < 0.7
    assert names_of(rows, rewards=rewards) == []


def test_spreads_are_those_at_the_first_weights_too(names_of: Named) -> None:
    def tenth(row: Row) -> Row:
        right = 0.3 + 0.01 * (row["step"] % 3)
        logged = {"reward": 0.1 * right, "reward_std": 0.047, "groups/reward_std": 0.04}
        return {**logged, "rewards/accuracy/mean": right, "rewards/accuracy/weight": 0.1}

    assert names_of(tenth, rewards=(RewardFact("accuracy", 1.0, True),)) == ["reward_flat"]


def held_out(*accuracies: float, problems: int = 200) -> list[Row]:
    return [
        {"step": 10 * number, "eval/accuracy": accuracy, "eval/problems": problems}
        for number, accuracy in enumerate(accuracies, start=1)
    ]


@pytest.mark.parametrize(
    ("evaluations", "sick"),
    [
        (held_out(0.3, 0.5, 0.5, 0.3, 0.25), True),
        (held_out(0.5, 0.52, 0.49, 0.5, 0.47, 0.5), False),
        (held_out(0.1, 0.1, 0.9, 0.9, 0.5), False),  # two and two: the last two are no worse than any before them
        (held_out(0.6, 0.45, problems=10), False),
    ],
)
def test_held_out_accuracy_that_falls_while_the_reward_rises(
    evaluations: list[Row], sick: bool, names_of: Named
) -> None:
    assert names_of({}, evaluations) == ["held_out_accuracy_falls"] * sick


@pytest.mark.parametrize(
    ("rewards", "spread", "sick"),
    [
        ((2.0, 1.8, 1.6, 1.2, 1.1, 1.0), 1.0, True),
        ((2.0, 1.8, 1.6, 1.2, 1.1, 1.0), 20.0, False),  # by luck, at such a spread over 200 problems
        ((0.020, 0.018, 0.016, 0.012, 0.011, 0.010), 0.01, True),  # in units of its own
    ],
)
def test_a_held_out_reward_that_falls_counts_where_nothing_is_right_or_wrong(
    rewards: tuple[float, ...], spread: float, sick: bool, names_of: Named
) -> None:
    rows = [
        {"step": 10 * number, "eval/reward": reward, "eval/reward_std": spread, "eval/problems": 200}
        for number, reward in enumerate(rewards, start=1)
    ]
    assert names_of({}, rows) == ["held_out_accuracy_falls"] * sick
    around = {"reward_before": rewards[0], "reward_after": rewards[-1], "accuracy_before": None, "finished": True}
    around |= {"reward_std_before": spread, "reward_std_after": spread, "held_out_problems": 200}
    assert names_of({}, (), around) == ["held_out_accuracy_falls"] * sick


@pytest.mark.parametrize(
    ("problems", "before", "after", "sick"),
    [
        (200, 0.5, 0.2, True),
        (200, 0.5, 0.48, False),
        (2, 1.0, 0.0, False),
    ],
)
def test_accuracy_before_and_after_a_run_counts_too_where_there_are_problems_enough(
    problems: int, before: float, after: float, sick: bool, names_of: Named
) -> None:
    summary = {"accuracy_before": before, "accuracy_after": after, "held_out_problems": problems, "finished": True}
    assert names_of({}, (), summary) == ["held_out_accuracy_falls"] * sick


def test_held_out_accuracy_is_followed_over_stages(rows_with: Callable[..., list[Row]], names_of: Named) -> None:
    rows = rows_with(
        lambda row: (
            {"stage": "format", "reward": 0.95}
            if row["step"] <= 20
            else {"stage": "sums", "reward": 0.3 + 0.005 * (row["step"] - 20)}
        )
    )
    assert names_of(rows, held_out(0.5, 0.5, 0.4, 0.3, 0.2, 0.1, problems=500)) == ["held_out_accuracy_falls"]
    assert names_of(rows, held_out(*[0.5] * 6, problems=500)) == []
