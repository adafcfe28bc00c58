"""What the doctor finds in the rows of a healthy run with some figures changed: by itself, in stages, in time."""

from __future__ import annotations

import random
import re
import shlex
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlvr_vocab.analysis.doctor.diagnose import RULES, Doctor, diagnose
from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.checks import machine
from rlvr_vocab.checks.remedies import checked_facts
from rlvr_vocab.cli import load_settings
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import config_yaml
from rlvr_vocab.record.metrics import RewardFact, RunFacts, RunRecord
from rlvr_vocab.runs.record import run_facts

Row = dict[str, Any]
Named = Callable[..., list[str]]
RowsWith = Callable[..., list[Row]]
REWARDS = tuple(RewardFact(name, weight, False) for name, weight in (("accuracy", 1.0), ("boxed", 0.01)))
NO_SPREAD = {"reward_std": 0.0, "groups/reward_std": 0.0, "frac_reward_zero_std": 1.0}
OF_UPDATES = ("step", "loss", "grad_norm", "learning_rate", "entropy", "entropy/thinking", "weights/moved", "step_time")


def later(step: int, first: int = 20) -> float:
    """0 up to a step, then rising by one a step."""
    return float(max(0, step - first))


SICK: dict[str, tuple[str, Callable[[Row], Row]]] = {
    "every problem out of reach": (
        "groups_too_hard",
        lambda row: {"reward": 0.0, **NO_SPREAD},
    ),
    "every problem solved": (
        "groups_too_easy",
        lambda row: {"reward": 1.0, **NO_SPREAD},
    ),
    "half a mark for everything": (
        "reward_never_varies",
        lambda row: {"reward": 0.5, **NO_SPREAD},
    ),
    "a spread that falls away": (
        "spread_lost",
        lambda row: {"reward": 0.6, **NO_SPREAD} if row["step"] > 8 else {},
    ),
    "a reward that hardly varies": ("reward_never_varies", lambda row: {"reward_std": 0.05}),
    "a reward that stays": ("reward_flat", lambda row: {"reward": 0.3 + 0.01 * (row["step"] % 3)}),
    "a reward that is lost": ("reward_collapsed", lambda row: {"reward": 0.02} if row["step"] > 40 else {}),
    "KL above its limit": ("kl_high", lambda row: {"kl": 0.02 * row["step"]}),
    "KL above its limit, seldom logged": (
        "kl_high",
        lambda row: {"kl": 0.9 if row["step"] > 30 else 0.1} if "kl" in row else {},
    ),
    "KL that explodes": ("kl_exploding", lambda row: {"kl": 1.3 ** later(row["step"])}),
    "entropy that collapses": (
        "entropy_collapsing",
        lambda row: {name: row[name] * 0.7 ** later(row["step"], 10) for name in row if name.startswith("entropy")},
    ),
    "entropy that explodes": ("entropy_exploding", lambda row: {"entropy": row["entropy"] + 0.1 * later(row["step"])}),
    "completions at the limit": ("completions_cut_off", lambda row: {"completions/clipped_ratio": 0.6}),
    "thinking without an end": ("thinking_never_closed", lambda row: {"thinking/closed": 0.02}),
    "one text for every problem": (
        "mode_collapse",
        lambda row: {"completions/duplicates": 0.86, "completions/shared": 0.9},
    ),
    "a format that nobody meets": (
        "format_reward_zero",
        lambda row: {"rewards/boxed/mean": 0.0, "rewards/boxed/std": 0.0},
    ),
    "one function five hundred times another": (
        "reward_dominated",
        lambda row: {"rewards/boxed/mean": 100.0, "rewards/boxed/std": 23500.0},
    ),
    "timeouts": ("verifier_timeouts", lambda row: {"rewards/accuracy/timeouts": 3.0}),
    "failures": ("rows_skipped", lambda row: {"rewards/accuracy/failures": 2.0}),
    "rows without a score": ("rows_skipped", lambda row: {"rewards/accuracy/unscored": 0.2}),
    "gradients far above the limit": ("gradients_clipped", lambda row: {"grad_norm": 8.0 * row["grad_norm"]}),
    "a rate of 0": ("learning_rate_zero", lambda row: {"learning_rate": 0.0, "weights/moved": 0.0}),
    "another sampler": ("sampler_disagrees", lambda row: {"sampling/logp_gap": 0.3}),
    "another engine": (
        "sampler_disagrees",
        lambda row: {"sampling/logp_gap": None, "sampling/sampling_logp_difference/mean": 0.3},
    ),
    "copies that nobody uses": ("reasoning_tokens_unused", lambda row: {"thinking/reasoning_share": 0.001}),
    "no thinking": (
        "reasoning_tokens_unused",
        lambda row: {"thinking/reasoning_share": None, "thinking/mean_length": 0.0, "thinking/closed": 0.0},
    ),
    "nothing but copies": ("reasoning_tokens_everywhere", lambda row: {"thinking/reasoning_share": 0.92}),
    "weights that stay": ("weights_not_moving", lambda row: {"weights/moved": 0.0}),
    "weights that mostly stay": ("updates_rounded_away", lambda row: {"weights/moved": 0.1}),
    "slow scoring": ("scoring_slow", lambda row: {"step_time": 2.0, "time/rewards": 1.5}),
    "gradients that are no numbers": ("loss_not_finite", lambda row: {"grad_norm": None} if row["step"] > 20 else {}),
    "a loss that is no number": ("loss_not_finite", lambda row: {"loss": None} if row["step"] > 20 else {}),
}


@pytest.mark.parametrize("logging_steps", [1, 5])
@pytest.mark.parametrize("sickness", SICK)
def test_a_sickness_is_named_with_figures_and_a_step_and_at_most_one_other(
    sickness: str, logging_steps: int, rows_with: RowsWith, findings_of: Callable[..., list[Finding]]
) -> None:
    expected, change = SICK[sickness]
    found = {each.name: each for each in findings_of(logged_every(rows_with(change), logging_steps), rewards=REWARDS)}
    assert expected in found and len(found) <= 2, found
    finding = found[expected]
    assert re.search(r"\d", finding.evidence) and re.search(r"steps? \d+", finding.evidence), finding
    assert finding.title and finding.cause and finding.remedy and 10 <= finding.step <= 60


def test_every_rule_has_a_sickness() -> None:
    assert {*(name for name, _ in SICK.values()), "held_out_accuracy_falls"} == set(RULES)


def logged_every(rows: list[Row], steps: int) -> list[Row]:
    """What the trainer would have written: means over some steps, the rate of the last one."""
    joined = []
    for start in range(0, len(rows), steps):
        part = rows[start : start + steps]
        names = {name: None for row in part for name in row}
        means = {}
        for name in names:
            given = [row[name] for row in part if name in row]
            means[name] = None if None in given else sum(given) / len(given)
        joined.append({**means, "step": part[-1]["step"], "learning_rate": part[-1]["learning_rate"]})
    return joined


@pytest.mark.parametrize("logging_steps", [1, 5, 10])
def test_a_healthy_run_has_no_findings(logging_steps: int, healthy_rows: list[Row], names_of: Named) -> None:
    assert names_of(logged_every(healthy_rows, logging_steps)) == []


def test_what_was_logged_by_earlier_versions_is_no_sickness(healthy_rows: list[Row], names_of: Named) -> None:
    known = ("step", "loss", "reward", "reward_std", "frac_reward_zero_std", "entropy", "learning_rate", "grad_norm")
    assert names_of([{name: row[name] for name in known} for row in healthy_rows]) == []
    assert names_of([{"step": row["step"], "loss": 0.0} for row in healthy_rows]) == []


@pytest.mark.parametrize("count", range(9))
def test_a_few_rows_say_nothing(count: int, rows_with: RowsWith, names_of: Named) -> None:
    for _, change in SICK.values():
        assert names_of(rows_with(change, count), rewards=REWARDS) == []


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("logging_steps", [1, 5])
@pytest.mark.parametrize("right", [0.05, 0.3, 0.6])
def test_short_healthy_runs_of_small_batches_have_no_findings(
    right: float, logging_steps: int, seed: int, rows_with: RowsWith, names_of: Named
) -> None:
    """Two groups of four at a step, each right with its own chance, for 2 to 12 steps."""
    luck = random.Random(seed)

    def scored(row: Row) -> Row:
        scores = [float(luck.random() < right) for _ in range(8)]
        mean, spread = statistics.fmean(scores), statistics.stdev(scores)
        alike = statistics.fmean(len(set(group)) == 1 for group in (scores[:4], scores[4:]))
        return {
            "reward": mean,
            "reward_std": spread,
            "frac_reward_zero_std": alike,
            "groups/reward_std": spread,
            "rewards/accuracy/mean": mean,
            "rewards/accuracy/std": spread,
            "completions/clipped_ratio": sum(luck.random() < 0.2 for _ in range(8)) / 8,
        }

    rows = [{name: value for name, value in row.items() if name != "kl"} for row in rows_with(scored, 12)]
    for count in range(1, 13):
        logged = logged_every(rows[:count], logging_steps)
        assert names_of(logged, num_generations=4, completions_per_step=8) == []


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
    expected: str | None, change: Row, every: int, healthy_rows: list[Row], names_of: Named
) -> None:
    rows = [
        {**row, **change} if number % every == 0 else {name: row[name] for name in OF_UPDATES}
        for number, row in enumerate(healthy_rows)
    ]
    assert names_of(rows) == ([expected] if expected else [])


@pytest.mark.parametrize("sampled", [4, 5])
def test_single_batches_far_apart_are_judged_from_five_on(
    sampled: int, healthy_rows: list[Row], names_of: Named
) -> None:
    rows = [
        {**row, "completions/clipped_ratio": 0.97} if number % 10 == 0 else {name: row[name] for name in OF_UPDATES}
        for number, row in enumerate(healthy_rows[: 10 * sampled])
    ]
    assert names_of(rows) == ["completions_cut_off"] * (sampled == 5)


def test_what_follows_from_another_finding_is_not_told(names_of: Named) -> None:
    cut_off = {"completions/clipped_ratio": 1.0, "reward": 0.0, **NO_SPREAD}
    assert names_of(cut_off) == ["completions_cut_off", "groups_too_hard"]  # a model that knows nothing has both
    fallen = {"entropy": 4.0, "thinking/closed": 0.0, "reward": 0.0, **NO_SPREAD}
    assert names_of(lambda row: fallen if row["step"] > 8 else {}) == ["entropy_exploding"]
    kl = names_of(lambda row: {**(fallen if row["step"] > 8 else {}), "kl": 0.5 * row["step"]})
    assert kl == ["kl_exploding"]


def test_errors_come_before_warnings_and_then_it_goes_by_step(findings_of: Callable[..., list[Finding]]) -> None:
    found = findings_of(lambda row: {"kl": 0.7, "thinking/closed": 0.01 if row["step"] > 30 else 0.97})
    assert [(each.name, each.severity) for each in found] == [
        ("thinking_never_closed", "error"),
        ("kl_high", "warning"),
    ]


def test_rows_one_by_one_lead_to_the_same_in_bounded_memory(
    rows_with: RowsWith, facts: RunFacts, tmp_path: Path
) -> None:
    rows = rows_with(lambda row: {"kl": 0.02 * row["step"]})
    doctor = Doctor(facts)
    told = [(row["step"], finding) for row in rows for finding in doctor.look(row)]
    found = diagnose(RunRecord(tmp_path, facts, tuple(rows)))
    assert [finding for _, finding in told] == found == doctor.findings()
    assert told[0][0] == found[0].step < 60
    for step in range(61, 1000):
        assert doctor.look({**rows[step % 40], "step": step}) == []
    for kept in (doctor._history.rows, doctor._history.sampled):
        assert len(kept._last) <= 100 and len(kept._first) <= 50


def test_a_new_stage_is_judged_by_its_own_rows(rows_with: RowsWith, names_of: Named) -> None:
    other = {"entropy": 1.9, "reward": 0.2, "step_time": 9.0, "completions/mean_length": 60.0}

    def stage(row: Row) -> Row:
        if row["step"] <= 20:
            return {"stage": "format", "stage_step": row["step"]}
        return {"stage": "sums", **{name: value + 0.01 * (row["step"] - 20) for name, value in other.items()}}

    rows = rows_with(stage)
    assert names_of(rows) == []
    assert names_of([{**row, "stage": "one"} for row in rows]) != []


def test_each_stage_is_judged_by_its_own_settings(rows_with: RowsWith, tmp_path: Path) -> None:
    facts = run_facts(read_settings("train", ["experiment=quickstart_stages"]).resolved, tmp_path)
    assert [stage.stage for stage in facts.stages] == ["format", "correctness"]
    assert facts.stages[0].learning_rate == 5e-05 != facts.learning_rate == facts.stages[1].learning_rate
    assert {each.name: each.weight for each in facts.stages[1].rewards} == {"accuracy": 1.0, "boxed": 0.2}

    def learned(row: Row) -> Row:
        part = min(1.0, 0.3 + 0.7 * row["step"] / 30)
        spread = (part * (1 - part)) ** 0.5
        scores = {"rewards/accuracy/mean": part, "rewards/accuracy/std": spread, "rewards/accuracy/weight": 1.0}
        still = NO_SPREAD if part == 1 else {"reward_std": spread, "groups/reward_std": 0.9 * spread}
        boxed = {"rewards/boxed/mean": 1.0, "rewards/boxed/std": 0.0}
        return {**scores, **boxed, "reward": part + 0.2, **still, "stage": "correctness"}

    assert diagnose(RunRecord(tmp_path, facts, tuple(rows_with(learned)))) == []


def test_a_remedy_in_a_stage_says_so(rows_with: RowsWith, tmp_path: Path) -> None:
    stages = "stages=[{name: one, training: {max_completion_length: 20, learning_rate: 0.0, max_steps: 60}}]"
    facts = run_facts(read_settings("train", ["experiment=quickstart", stages]).resolved, tmp_path)
    sick = {"stage": "one", "completions/clipped_ratio": 1.0, "learning_rate": 0.0, "weights/moved": 0.0}
    found = {finding.name: finding for finding in diagnose(RunRecord(tmp_path, facts, tuple(rows_with(sick))))}
    assert found["completions_cut_off"].remedy[0] == "in stage one: training.max_completion_length=40"
    assert "at 20 tokens" in found["completions_cut_off"].evidence
    assert found["learning_rate_zero"].cause == "training.learning_rate is 0"


# Much of what the doctor suggests is in force: by default, in the quickstart, or as a user has set it.
CONFIGURATIONS = {
    "quickstart": (["experiment=quickstart", "dataset.open_thinking=prefill", "model.reasoning_mode=replace"], SICK),
    "a small GPU": (
        ["model=smollm2_135m", "dataset=math", "training=small_gpu", "rewards=xml", "logging=disabled"],
        ("every problem out of reach", "completions at the limit", "failures", "gradients far above the limit"),
    ),
}


def leaves(value: Any, name: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {name: value}
    return {leaf: each for key in value for leaf, each in leaves(value[key], f"{name}.{key}".lstrip(".")).items()}


@pytest.mark.parametrize("kind", [pytest.param("quickstart", marks=pytest.mark.slow), "a small GPU"])
def test_every_remedy_changes_the_configuration_and_is_accepted(
    kind: str, rows_with: RowsWith, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "installed", lambda package: True)
    given, sicknesses = CONFIGURATIONS[kind]
    settings = read_settings("train", given)
    (tmp_path / "config.yaml").write_text(config_yaml(settings.resolved), encoding="utf-8")
    facts = checked_facts(run_facts(settings.resolved, tmp_path), tmp_path)
    lines = set()
    for sickness in sicknesses:
        doctor = Doctor(facts)
        for row in rows_with(SICK[sickness][1], 40):
            doctor.look(row)
        lines |= {line for finding in doctor.found.values() for line in finding.remedy}
    assert len(lines) >= 5
    # Lines of different keys are typed together: one composition for each would take a minute.
    commands: list[dict[str, str]] = []
    for line in sorted(lines):
        words = dict(word.split("=", 1) for word in shlex.split(line))
        into = next((each for each in commands if not each.keys() & words.keys()), None)
        commands.append(words) if into is None else into.update(words)
    before = leaves(settings.resolved)
    for command in commands:
        typed = [f"{key}={value}" for key, value in command.items()]
        run = load_settings("train", [f"config={tmp_path}", f"output_dir={tmp_path / 'new'}", *typed])
        after = leaves(run.resolved)
        for key in command:
            assert any(after.get(name) != before.get(name) for name in after if name.startswith(key)), key
