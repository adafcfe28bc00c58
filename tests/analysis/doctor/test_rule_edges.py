"""Where a rule begins and ends, and that its remedies keep what the run had; on the rows of a healthy run."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlvr_vocab.analysis.doctor.diagnose import diagnose
from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.analysis.doctor.reward_words import rewards_line
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.record.metrics import RewardFact, RunFacts, RunRecord

Row = dict[str, Any]
OWN = Path(__file__).with_name("own_rewards.py")
OF_UPDATES = ("step", "loss", "grad_norm", "learning_rate", "step_time", "weights/moved")


@pytest.fixture
def findings_of(facts: RunFacts, tmp_path: Path) -> Callable[..., list[Finding]]:
    def found(rows: list[Row], **changed: Any) -> list[Finding]:
        return diagnose(RunRecord(tmp_path, replace(facts, **changed), tuple(rows)))

    return found


def names(found: list[Finding]) -> list[str]:
    return [finding.name for finding in found]


def seconds(generation: float, update: float) -> Row:
    return {"step_time": generation + update + 0.01, "time/generation": generation, "time/rewards": 0.01}


@pytest.mark.parametrize("on_cpu", [False, True])
@pytest.mark.parametrize(
    ("late", "on_a_gpu", "on_a_cpu"),
    [
        (seconds(2.5, 0.4), "generation", "generation"),
        (seconds(0.3, 2.4), "update", "update"),
        (seconds(1.0, 1.4), "update", None),
        (seconds(1.8, 2.5), "update", "update"),
        (seconds(0.5, 0.6), None, None),
    ],
)
def test_a_part_that_is_slow_alone_is_found_and_a_machine_that_is_shared_is_not(
    late: Row, on_a_gpu: str | None, on_a_cpu: str | None, on_cpu: bool, healthy_rows: list[Row], findings_of: Any
) -> None:
    rows = [{**row, **(late if row["step"] > 30 else seconds(0.3, 0.4))} for row in healthy_rows]
    part = on_a_cpu if on_cpu else on_a_gpu
    assert [each.title for each in findings_of(rows, on_cpu=on_cpu)] == [f"Steps are slow: {part}"] * bool(part)


@pytest.mark.parametrize("count", [24, 30, 39])
def test_a_short_run_that_slows_down_half_way_is_found(count: int, healthy_rows: list[Row], findings_of: Any) -> None:
    rows = [{**row, **(seconds(3.3, 0.4) if row["step"] > count // 2 else {})} for row in healthy_rows[:count]]
    assert names(findings_of(rows)) == ["steps_slow"]


def test_a_single_long_step_is_no_habit(healthy_rows: list[Row], findings_of: Any) -> None:
    rows = [{**row, **(seconds(60.0, 0.4) if row["step"] == 40 else {})} for row in healthy_rows]
    assert findings_of(rows) == []


@pytest.mark.parametrize("between", [1, 2, 4])
def test_slow_scoring_is_found_where_some_steps_draw_nothing(
    between: int, healthy_rows: list[Row], findings_of: Any
) -> None:
    rows = [
        {**row, "time/rewards": 6.0, "step_time": 6.7}
        if row["step"] % between == 0
        else {**{name: row[name] for name in OF_UPDATES}, "time/generation": 0.0, "time/rewards": 0.0}
        for row in healthy_rows
    ]
    [finding] = findings_of(rows, num_iterations=between)
    assert finding.title == "Steps are slow: rewards"


@pytest.mark.parametrize(
    ("rate", "pure_bf16", "name", "said"),
    [
        (0.0, False, "learning_rate_zero", "is 0"),
        (1e-8, False, "learning_rate_zero", "too low"),
        (1e-6, False, "updates_rounded_away", "the learning rate is too low"),
        (1e-6, True, "updates_rounded_away", "16 bits"),
    ],
)
def test_weights_that_stay_have_the_cause_that_the_configuration_tells(
    rate: float, pure_bf16: bool, name: str, said: str, healthy_rows: list[Row], findings_of: Any
) -> None:
    rows = [{**row, "learning_rate": rate, "weights/moved": 0.2} for row in healthy_rows]
    [finding] = findings_of(rows, learning_rate=rate, pure_bf16=pure_bf16)
    assert finding.name == name and said in finding.cause
    assert ("model.pure_bf16=false" in finding.remedy) == pure_bf16


def test_the_end_of_a_decay_may_round_away(healthy_rows: list[Row], findings_of: Any) -> None:
    for row in healthy_rows:
        row_rate = row["learning_rate"]
        assert row_rate < 2e-4 or row["step"] < 50
    rows = [{**row, "weights/moved": 0.0 if row["learning_rate"] < 1e-4 else 1.0} for row in healthy_rows]
    assert findings_of(rows) == []


@pytest.mark.parametrize(
    ("norm", "count", "sick"), [(1.1, 60, False), (3.0, 60, False), (5.1, 12, True), (50.0, 15, True), (50.0, 9, False)]
)
def test_gradients_far_above_the_limit(
    norm: float, count: int, sick: bool, healthy_rows: list[Row], findings_of: Any
) -> None:
    rows = [{**row, "grad_norm": norm} for row in healthy_rows[:count]]
    assert names(findings_of(rows)) == ["gradients_clipped"] * sick


@pytest.mark.parametrize("name", ["no_tags", "xml_penalty", "structure_violations", "style"])
def test_a_penalty_of_0_is_no_format_that_nobody_meets(name: str, healthy_rows: list[Row], findings_of: Any) -> None:
    rows = [{**row, f"rewards/{name}/mean": 0.0, f"rewards/{name}/std": 0.0} for row in healthy_rows]
    assert findings_of(rows) == []


@pytest.mark.parametrize("name", ["boxed", "xml_format", "my_format"])
def test_a_format_of_0_is_one(name: str, healthy_rows: list[Row], findings_of: Any) -> None:
    rows = [{**row, f"rewards/{name}/mean": 0.0, f"rewards/{name}/std": 0.0} for row in healthy_rows]
    assert names(findings_of(rows)) == ["format_reward_zero"]
    punished = RewardFact(name, 1.0, False, name, full_mark=0.0)
    assert findings_of(rows, rewards=(RewardFact("accuracy", 1.0, False), punished)) == []


def test_timeouts_and_failures_are_counted_in_the_steps_that_scored(healthy_rows: list[Row], findings_of: Any) -> None:
    for metric, name in (("timeouts", "verifier_timeouts"), ("failures", "rows_skipped"), ("unscored", "rows_skipped")):
        rows = [
            {**row, f"rewards/accuracy/{metric}": 3.0}
            if row["step"] % 4 == 0
            else {name: row[name] for name in OF_UPDATES}
            for row in healthy_rows
        ]
        assert names(findings_of(rows, num_iterations=4)) == [name]


REWARDS = (
    RewardFact("accuracy", 2.0, False, "accuracy", more={"params": {"answer_from": ["answer_tag", "box"]}}),
    RewardFact("my_format", 0.5, False, f"{OWN}:constant", full_mark=0.5, more={"full_mark": 0.5, "deadline": 20}),
    RewardFact("boxed", 0.1, True, "boxed", more={"adaptive": {"window": 16}}),
    RewardFact("forbidden_text", 1.0, False, "forbidden_text", more={"params": {"texts": ["it's $5", 'a "b"', "1"]}}),
)
CHANGES: tuple[tuple[str, Row], ...] = (
    ("verifier_timeouts", {"rewards/accuracy/timeouts": 3.0}),
    ("verifier_timeouts", {"rewards/my_format/timeouts": 3.0}),
    ("rows_skipped", {"rewards/my_format/failures": 3.0}),
    ("format_reward_zero", {"rewards/my_format/mean": 0.0, "rewards/my_format/std": 0.0}),
    ("mode_collapse", {"completions/duplicates": 0.87}),
    ("steps_slow", {"step_time": 9.0, "time/rewards": 8.0}),
    ("reward_dominated", {"rewards/boxed/std": 300.0}),
    ("reward_never_varies", {"reward": 1.1, "reward_std": 0.0, "groups/reward_std": 0.0, "frac_reward_zero_std": 1.0}),
)


def typed_rewards(*words: str) -> list[Row]:
    functions: list[Row] = read_settings("train", ["experiment=quickstart", *words]).resolved["rewards"]["functions"]
    return functions


def test_a_line_of_rewards_composes_to_what_the_run_had(facts: RunFacts) -> None:
    [word] = shlex.split(rewards_line(replace(facts, rewards=REWARDS), {}))
    functions = typed_rewards(word)
    assert [(each["name"], each["weight"]) for each in functions] == [(each.asked_as, each.weight) for each in REWARDS]
    assert functions[3]["params"] == REWARDS[3].more["params"] and functions[2]["adaptive"]["window"] == 16
    assert (functions[1]["full_mark"], functions[1]["deadline"]) == (0.5, 20.0)


@pytest.mark.parametrize(("name", "change"), CHANGES)
def test_a_remedy_keeps_the_other_functions_of_the_run(
    name: str, change: Row, healthy_rows: list[Row], findings_of: Any
) -> None:
    scored = {f"rewards/{each.name}/{figure}": 0.4 for each in REWARDS for figure in ("mean", "std")}
    rows = [{**scored, **row, **change} for row in healthy_rows]
    [finding] = [each for each in findings_of(rows, rewards=REWARDS) if each.name == name]
    lines = [shlex.split(line) for line in finding.remedy if "rewards=" in line]
    assert lines
    for words in lines:
        functions = typed_rewards(*words)
        assert functions[0]["params"]["answer_from"] == ["answer_tag", "box"] and functions[0]["weight"] == 2.0
        assert {"boxed", "forbidden_text"} <= {each["name"] for each in functions}
