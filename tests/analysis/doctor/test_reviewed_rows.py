"""Rows in which one sickness looks like another, or a healthy run like a sick one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlvr_vocab.analysis.doctor.diagnose import diagnose
from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.analysis.doctor.watch import Doctor
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.record.metrics import RewardFact, RunFacts, RunRecord
from rlvr_vocab.rewards.adaptive import Adaptation, AdaptiveWeight
from rlvr_vocab.runs.record import run_facts

Row = dict[str, Any]
NO_SPREAD = {"reward_std": 0.0, "groups/reward_std": 0.0, "frac_reward_zero_std": 1.0}
CUT = {
    "completions/clipped_ratio": 1.0,
    "thinking/closed": 0.0,
    "answering/mean_length": 0.0,
    "reward": 0.0,
    **NO_SPREAD,
}
OF_UPDATES = ("step", "loss", "grad_norm", "learning_rate", "entropy", "entropy/thinking", "weights/moved", "step_time")


@pytest.fixture
def findings_of(facts: RunFacts, tmp_path: Path) -> Callable[..., list[Finding]]:
    def found(rows: Iterable[Row], evaluations: Iterable[Row] = (), summary: Row | None = None, **changed: Any) -> Any:
        return diagnose(RunRecord(tmp_path, replace(facts, **changed), tuple(rows), tuple(evaluations), summary))

    return found


def named(findings: Iterable[Finding]) -> list[str]:
    return [finding.name for finding in findings]


def of_own(row: Row, reward: float, spread: float) -> Row:
    """The row with a single function of the user's own."""
    plain = {name: value for name, value in row.items() if not name.startswith("rewards/")}
    still = NO_SPREAD if spread == 0 else {"reward_std": spread, "groups/reward_std": 0.9 * spread}
    return {**plain, "reward": reward, "rewards/own/mean": reward, "rewards/own/std": spread, **still}


@pytest.mark.parametrize("until", [2, 3, 5, 8, 20])
def test_a_reward_that_is_gone_at_once_has_collapsed_and_nothing_else(
    until: int, healthy_rows: list[Row], findings_of: Any
) -> None:
    lost = {**CUT, "kl": 1.2, "completions/duplicates": 0.87, "thinking/reasoning_share": 0.0}
    rows = [
        {**row, "reward": 0.45 - 0.05 * (row["step"] % 2), **({} if row["step"] <= until else lost)}
        for row in healthy_rows
    ]
    [finding] = findings_of(rows, learning_rate=1e-3, reasoning_copies=1.0)
    assert finding.name == "reward_collapsed" and finding.step is not None and finding.step <= until + 12
    assert finding.remedy[0] == "training.learning_rate=0.00025"


def test_what_was_lost_within_the_first_row_is_told_by_the_accuracies(
    healthy_rows: list[Row], findings_of: Any
) -> None:
    rows = [{**row, "reward": 0.0, **NO_SPREAD} for row in healthy_rows[9::10]]
    summary = {"accuracy_before": 0.31, "accuracy_after": 0.02, "held_out_problems": 200}
    assert named(findings_of(rows)) == ["groups_too_hard"]
    assert named(findings_of(rows, (), summary)) == ["reward_collapsed"]
    assert named(findings_of(rows, (), {**summary, "accuracy_before": 0.03})) == ["groups_too_hard"]


@pytest.mark.parametrize("seed", range(20))
def test_a_lucky_beginning_is_no_collapse(seed: int, healthy_rows: list[Row], findings_of: Any) -> None:
    luck = random.Random(seed)
    rows = [{**row, "reward": sum(luck.random() < 0.35 for _ in range(16)) / 16} for row in healthy_rows]
    assert "reward_collapsed" not in named(findings_of(rows))


def test_a_tight_limit_explains_what_it_does(healthy_rows: list[Row], findings_of: Any) -> None:
    some_close = {**CUT, "thinking/closed": 0.3}
    rows = [{**row, **some_close} for row in healthy_rows]
    assert named(findings_of(rows, reasoning_copies=1.0)) == ["completions_cut_off"]
    none_closes = [{**row, "thinking/closed": 0.0, "thinking/reasoning_share": 0.001} for row in rows]
    assert named(findings_of(none_closes, reasoning_copies=1.0)) == ["completions_cut_off", "thinking_never_closed"]


@pytest.mark.parametrize("every", [2, 3, 4, 8])
@pytest.mark.parametrize(
    ("expected", "change"),
    [
        ("completions_cut_off", {"completions/clipped_ratio": 0.97}),
        ("groups_too_hard", {"reward": 0.0, **NO_SPREAD}),
        ("sampler_disagrees", {"sampling/logp_gap": 0.5}),
        ("thinking_never_closed", {"thinking/closed": 0.02}),
        ("mode_collapse", {"completions/duplicates": 0.87}),
        (None, {}),
    ],
)
def test_several_updates_from_one_batch_hide_nothing(
    expected: str | None, change: Row, every: int, healthy_rows: list[Row], findings_of: Any
) -> None:
    rows = [
        {**row, **change} if number % every == 0 else {name: row[name] for name in OF_UPDATES}
        for number, row in enumerate(healthy_rows)
    ]
    assert named(findings_of(rows, num_iterations=every)) == ([expected] if expected else [])


@pytest.mark.parametrize(("full", "mark"), [(1.0, None), (2.0, None), (10.0, None), (10.0, 10.0)])
def test_a_reward_on_any_scale_may_be_learned(
    full: float, mark: float | None, healthy_rows: list[Row], findings_of: Any
) -> None:
    rewards = (RewardFact("own", 1.0, False, "my.py:own", full_mark=mark),)
    parts = [min(1.0, 0.3 + 0.7 * row["step"] / 30) for row in healthy_rows]
    spreads = [(part * (1 - part)) ** 0.5 for part in parts]
    grown = [of_own(row, full * part, full * s) for row, part, s in zip(healthy_rows, parts, spreads, strict=True)]
    assert findings_of(grown, rewards=rewards) == []
    penalties = [of_own(row, part - 1, s) for row, part, s in zip(healthy_rows, parts, spreads, strict=True)]
    for given in (None, 0.0):
        assert findings_of(penalties, rewards=(replace(rewards[0], full_mark=given),)) == []


def test_a_full_mark_says_what_is_too_easy(healthy_rows: list[Row], findings_of: Any) -> None:
    rows = [of_own(row, 10.0, 0.0) for row in healthy_rows]
    rewards = (RewardFact("own", 1.0, False, "my.py:own"),)
    assert named(findings_of(rows, rewards=rewards)) == ["reward_never_varies"]
    marked = named(findings_of(rows, rewards=(replace(rewards[0], full_mark=10.0),)))
    assert marked == ["groups_too_easy", "reward_never_varies"]


def test_a_reward_of_the_problem_alone_never_varies_however_it_is_scaled(
    healthy_rows: list[Row], findings_of: Any
) -> None:
    rows = [{**of_own(row, 0.5, 0.5), "groups/reward_std": 0.0, "frac_reward_zero_std": 0.0} for row in healthy_rows]
    assert named(findings_of(rows, rewards=(RewardFact("own", 1.0, False),))) == ["reward_never_varies"]


def test_each_stage_is_judged_by_its_own_settings(healthy_rows: list[Row], tmp_path: Path) -> None:
    facts = run_facts(read_settings("train", ["experiment=quickstart_stages"]).resolved, tmp_path)
    assert [stage.stage for stage in facts.stages] == ["format", "correctness"]
    assert facts.stages[0].learning_rate == 5e-05 != facts.learning_rate == facts.stages[1].learning_rate
    assert {each.name: each.weight for each in facts.stages[1].rewards} == {"accuracy": 1.0, "boxed": 0.2}

    def learned(row: Row) -> Row:
        part = min(1.0, 0.3 + 0.7 * row["step"] / 30)
        spread = (part * (1 - part)) ** 0.5
        scores = {"rewards/accuracy/mean": part, "rewards/accuracy/std": spread, "rewards/accuracy/weight": 1.0}
        still = NO_SPREAD if part == 1 else {"reward_std": spread, "groups/reward_std": 0.9 * spread}
        whole = {**row, **scores, "rewards/boxed/mean": 1.0, "rewards/boxed/std": 0.0, "reward": part + 0.2, **still}
        return {**whole, "stage": "correctness"}

    assert diagnose(RunRecord(tmp_path, facts, tuple(map(learned, healthy_rows)))) == []


def test_a_remedy_in_a_stage_says_so(healthy_rows: list[Row], tmp_path: Path) -> None:
    stages = "stages=[{name: one, training: {max_completion_length: 20, learning_rate: 0.0, max_steps: 60}}]"
    facts = run_facts(read_settings("train", ["experiment=quickstart", stages]).resolved, tmp_path)
    rows = [
        {**row, "stage": "one", "completions/clipped_ratio": 1.0, "learning_rate": 0.0, "weights/moved": 0.0}
        for row in healthy_rows
    ]
    found = {finding.name: finding for finding in diagnose(RunRecord(tmp_path, facts, tuple(rows)))}
    assert found["completions_cut_off"].remedy[0] == "in stage one: training.max_completion_length=40"
    assert "at 20 tokens" in found["completions_cut_off"].evidence
    assert found["learning_rate_zero"].cause == "training.learning_rate is 0"


def test_held_out_accuracy_is_followed_over_stages(healthy_rows: list[Row], findings_of: Any) -> None:
    rows, evaluations = [], []
    for row in healthy_rows:
        step = row["step"]
        early = {"stage": "format", "reward": 0.95}
        rows.append({**row, **(early if step <= 20 else {"stage": "sums", "reward": 0.3 + 0.005 * (step - 20)})})
        if step % 10 == 0:
            accuracy = 0.5 if step <= 20 else 0.5 - 0.01 * (step - 20)
            evaluations.append({"step": step, "eval/accuracy": accuracy, "eval/problems": 500})
    assert named(findings_of(rows, evaluations)) == ["held_out_accuracy_falls"]
    same = [{**each, "eval/accuracy": 0.5} for each in evaluations]
    assert findings_of(rows, same) == []


@pytest.mark.parametrize("window", [5, 10, 20])
def test_a_weight_that_falls_by_itself_is_no_lost_reward(
    window: int, healthy_rows: list[Row], findings_of: Any
) -> None:
    rewards = (RewardFact("accuracy", 1.0, True), RewardFact("boxed", 0.2, False))
    weight, luck, rows = AdaptiveWeight(1.0, 1.0, Adaptation(window=window)), random.Random(0), []
    for number in range(200):
        right = min(0.9, 0.3 + 0.01 * number) + luck.uniform(-0.02, 0.02)
        scores = {"rewards/accuracy/mean": right, "rewards/boxed/mean": 0.9, "rewards/boxed/std": 0.3}
        logged = {"reward": weight.value * right + 0.18, "rewards/accuracy/weight": weight.value}
        rows.append({**healthy_rows[number % 60], "step": number + 1, "learning_rate": 1e-4, **scores, **logged})
        share = round(100 * right)
        weight.observe([1.0] * share + [0.0] * (100 - share))
    assert weight.value < 0.7
    assert findings_of(rows, rewards=rewards) == []
    stays = [
        {**row, "rewards/accuracy/mean": 0.5 + 0.01 * (row["step"] % 3), "reward": 0.3 + 0.01 * row["step"]}
        for row in rows
    ]
    assert "reward_flat" in named(findings_of(stays, rewards=rewards))
    assert named(findings_of(stays, rewards=(replace(rewards[0], adaptive=False), rewards[1]))) == []


def test_a_policy_grows_sure_of_what_it_has_learned(healthy_rows: list[Row], findings_of: Any) -> None:
    rows = []
    for row in healthy_rows:
        part = min(1.0, 0.3 + 0.7 * row["step"] / 30)
        spread = (part * (1 - part)) ** 0.5
        sure = {name: max(0.005, row[name] * (1 - part) / 0.7) for name in row if name.startswith("entropy")}
        rows.append({**row, "reward": part, "reward_std": spread, "groups/reward_std": spread, **sure})
    assert findings_of(rows) == []
    wrong = [{**row, "reward": 0.3 + 0.01 * (row["step"] % 3)} for row in rows]
    assert "entropy_collapsing" in named(findings_of(wrong))


def test_a_rest_is_told_and_taken_back(healthy_rows: list[Row], facts: RunFacts, tmp_path: Path) -> None:
    rows = [
        {
            **healthy_rows[number % 60],
            "step": number + 1,
            "learning_rate": 1e-4,
            "reward": 0.3 + 0.01 * (number % 3) + 0.005 * max(0, number - 50),
        }
        for number in range(100)
    ]
    doctor = Doctor(facts, tmp_path)
    told = [finding.name for row in rows for finding in doctor.look(row)]
    assert told == ["reward_flat"]
    assert doctor.findings() == diagnose(RunRecord(tmp_path, facts, tuple(rows))) == []


def test_a_cold_sampler_is_not_cured_by_a_lower_rate(healthy_rows: list[Row], findings_of: Any) -> None:
    rows = [
        {**row, "completions/duplicates": 0.87, "reward": 0.5 if row["step"] <= 20 else 0.05} for row in healthy_rows
    ]
    assert named(findings_of(rows, temperature=0.1)) == ["mode_collapse"]


def test_the_first_kl_is_kept(healthy_rows: list[Row], findings_of: Any) -> None:
    rows = [{**row, "kl": 0.9 if row["step"] >= 10 else 0.01 * row["step"]} for row in healthy_rows]
    [finding] = findings_of(rows)
    assert finding.name == "kl_high" and "0.01 at step 1 " in finding.evidence
