"""What no small run shows, shown by the rows of a healthy one with some of their figures changed."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlvr_vocab.analysis.doctor.diagnose import diagnose
from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.analysis.doctor.watch import Doctor
from rlvr_vocab.checks import machine
from rlvr_vocab.cli import load_settings
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import config_yaml
from rlvr_vocab.record.metrics import RewardFact, RunFacts, RunRecord
from rlvr_vocab.runs.record import run_facts

Row = dict[str, Any]
Change = Callable[[Row], Row]


@pytest.fixture
def reasoning(facts: RunFacts) -> RunFacts:
    return replace(facts, reasoning_vocab_size=300, reasoning_copies=1.0, max_steps=60)


@pytest.fixture
def findings_of(reasoning: RunFacts, tmp_path: Path) -> Callable[..., list[Finding]]:
    def found(rows: Iterable[Row], evaluations: Iterable[Row] = (), summary: Row | None = None, **facts: Any) -> Any:
        record = RunRecord(tmp_path, replace(reasoning, **facts), tuple(rows), tuple(evaluations), summary)
        return diagnose(record)

    return found


def later(step: int, first: int = 20) -> float:
    """0 up to a step, then rising by one a step."""
    return float(max(0, step - first))


SICK: dict[str, tuple[str, Change]] = {
    "every problem out of reach": (
        "groups_too_hard",
        lambda row: {"reward": 0.0, "reward_std": 0.0, "groups/reward_std": 0.0, "frac_reward_zero_std": 1.0},
    ),
    "every problem solved": (
        "groups_too_easy",
        lambda row: {"reward": 1.0, "reward_std": 0.0, "groups/reward_std": 0.0, "frac_reward_zero_std": 1.0},
    ),
    "half a mark for everything": (
        "reward_never_varies",
        lambda row: {"reward": 0.5, "reward_std": 0.0, "groups/reward_std": 0.0, "frac_reward_zero_std": 1.0},
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
        lambda row: {"rewards/think_format/mean": 0.0, "rewards/think_format/std": 0.0},
    ),
    "one function five hundred times another": (
        "reward_dominated",
        lambda row: {"rewards/length/mean": 100.0, "rewards/length/std": 235.0},
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
    "sampling that slows down": (
        "steps_slow",
        lambda row: {"step_time": 3.0, "time/generation": 2.5} if row["step"] > 30 else {},
    ),
    "slow scoring": ("steps_slow", lambda row: {"step_time": 2.0, "time/rewards": 1.5}),
    "gradients that are no numbers": ("loss_not_finite", lambda row: {"grad_norm": None} if row["step"] > 20 else {}),
    "a loss that is no number": ("loss_not_finite", lambda row: {"loss": None} if row["step"] > 20 else {}),
}


@pytest.mark.parametrize("logging_steps", [1, 5])
@pytest.mark.parametrize("sickness", SICK)
def test_a_sickness_is_named_and_at_most_one_other(
    sickness: str, logging_steps: int, healthy_rows: list[Row], findings_of: Any
) -> None:
    expected, change = SICK[sickness]
    rows = [{**row, **change(row)} for row in healthy_rows]
    found = findings_of(logged_every(rows, logging_steps))
    names = [finding.name for finding in found]
    assert expected in names and len(names) <= 2, found


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
def test_a_healthy_run_has_no_findings(logging_steps: int, healthy_rows: list[Row], findings_of: Any) -> None:
    assert findings_of(logged_every(healthy_rows, logging_steps)) == []


def test_what_was_logged_by_earlier_versions_is_no_sickness(healthy_rows: list[Row], findings_of: Any) -> None:
    known = ("step", "loss", "reward", "reward_std", "frac_reward_zero_std", "entropy", "learning_rate", "grad_norm")
    assert findings_of([{name: row[name] for name in known} for row in healthy_rows]) == []
    assert findings_of([{"step": row["step"], "loss": 0.0} for row in healthy_rows]) == []


@pytest.mark.parametrize("count", range(9))
def test_a_few_rows_say_nothing(count: int, healthy_rows: list[Row], findings_of: Any) -> None:
    for _, change in SICK.values():
        assert findings_of([{**row, **change(row)} for row in healthy_rows[:count]]) == []


def held_out(*accuracies: float, problems: int = 200) -> list[Row]:
    return [
        {"step": 10 * number, "eval/accuracy": accuracy, "eval/problems": problems}
        for number, accuracy in enumerate(accuracies, start=1)
    ]


@pytest.mark.parametrize(
    ("evaluations", "sick"),
    [
        (held_out(0.5, 0.45, 0.4, 0.3, 0.25, 0.2), True),
        (held_out(0.3, 0.5, 0.5, 0.3, 0.25), True),
        (held_out(0.6, 0.3), True),
        (held_out(0.3, 0.4, 0.45, 0.5), False),
        (held_out(0.5, 0.52, 0.49, 0.5, 0.47, 0.5), False),
        (held_out(0.6, 0.45, problems=10), False),
    ],
)
def test_held_out_accuracy_that_falls_while_the_reward_rises(
    evaluations: list[Row], sick: bool, healthy_rows: list[Row], findings_of: Any
) -> None:
    names = [finding.name for finding in findings_of(healthy_rows, evaluations)]
    assert names == ["held_out_accuracy_falls"] * sick


@pytest.mark.parametrize(("after", "sick"), [(0.2, True), (0.48, False), (0.7, False)])
def test_accuracy_before_and_after_a_run_counts_too(
    after: float, sick: bool, healthy_rows: list[Row], findings_of: Any
) -> None:
    summary = {"accuracy_before": 0.5, "accuracy_after": after, "held_out_problems": 200, "finished": True}
    assert [each.name for each in findings_of(healthy_rows, (), summary)] == ["held_out_accuracy_falls"] * sick


def test_a_new_stage_is_judged_by_its_own_rows(healthy_rows: list[Row], findings_of: Any) -> None:
    short = [{**row, "stage": "format", "stage_step": row["step"]} for row in healthy_rows[:20]]
    other = {"entropy": 1.9, "reward": 0.2, "step_time": 9.0, "completions/mean_length": 60.0}
    rows = [
        {**row, "stage": "sums", **{k: v + 0.01 * (row["step"] - 20) for k, v in other.items()}}
        for row in healthy_rows[20:]
    ]
    assert findings_of([*short, *rows]) == []
    assert [each.name for each in findings_of([{**row, "stage": "one"} for row in [*short, *rows]])] != []


@pytest.mark.parametrize(("share", "sick"), [(0.02, False), (0.4, True)])
def test_problems_left_out_are_rows_skipped(
    share: float, sick: bool, healthy_rows: list[Row], findings_of: Any, tmp_path: Path
) -> None:
    account = {"dataset": "x.jsonl", "rows_read": 1000, "left_out": {"no answer": int(1000 * share)}}
    (tmp_path / "problems.json").write_text(json.dumps({"training": [account]}))
    found = findings_of(healthy_rows)
    assert [each.name for each in found] == ["rows_skipped"] * sick
    assert not sick or "400 no answer" in found[0].evidence


def test_a_prefilled_tag_is_read_from_the_prompts(
    healthy_rows: list[Row], findings_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pandas as pd

    (tmp_path / "completions").mkdir()
    rows = [{**row, "rewards/think_format/mean": 0.0, "rewards/think_format/std": 0.0} for row in healthy_rows]
    for ending, said in (("<think>\n", "the chat template writes <think>"), ("assistant\n", "has never written")):
        prompts = pd.DataFrame({"prompt": [f"What?{ending}"] * 4})
        prompts.to_parquet(tmp_path / "completions" / "step_00001.parquet")
        [finding] = findings_of(rows)
        assert finding.name == "format_reward_zero" and said in finding.cause


def test_replace_mode_uses_reasoning_tokens_for_everything(healthy_rows: list[Row], findings_of: Any) -> None:
    rows = [{**row, "thinking/reasoning_share": 0.93} for row in healthy_rows]
    assert findings_of(rows, reasoning_mode="replace") == []


def test_a_reward_is_not_too_easy_for_having_been_learned(healthy_rows: list[Row], findings_of: Any) -> None:
    solved = {"reward": 1.0, "reward_std": 0.0, "frac_reward_zero_std": 1.0, "groups/reward_std": 0.0}
    rows = [{**row, **(solved if row["step"] > 30 else {})} for row in healthy_rows]
    assert findings_of(rows) == []


def test_a_small_weight_on_a_reward_that_is_met_is_not_drowned(healthy_rows: list[Row], findings_of: Any) -> None:
    rewards = (RewardFact("accuracy", 1.0, False), RewardFact("boxed", 0.1, False))
    rows = [{**row, "rewards/boxed/mean": 0.99, "rewards/boxed/std": 0.1} for row in healthy_rows]
    assert findings_of(rows, rewards=rewards) == []


def test_a_watch_beside_the_run_finds_the_same_in_bounded_memory(
    healthy_rows: list[Row], reasoning: RunFacts, tmp_path: Path
) -> None:
    rows = [{**row, "kl": 0.02 * row["step"]} for row in healthy_rows]
    doctor = Doctor(reasoning, tmp_path)
    told = [(row["step"], finding) for row in rows for finding in doctor.look(row)]
    found = diagnose(RunRecord(tmp_path, reasoning, tuple(rows)))
    assert [finding for _, finding in told] == found == doctor.findings()
    assert told[0][0] == found[0].step < 60
    for step in range(61, 3000):
        assert doctor.look({**rows[step % 40], "step": step}) == []
    for kept in (doctor._seen._all, doctor._seen._sampled):
        assert len(kept._last) <= 100 and len(kept._first) <= 50


def test_errors_come_before_warnings_and_then_it_goes_by_step(healthy_rows: list[Row], findings_of: Any) -> None:
    rows = [
        {**row, "kl": 0.7, "sampling/logp_gap": None, "thinking/closed": 0.01 if row["step"] > 30 else 0.97}
        for row in healthy_rows
    ]
    found = findings_of(rows)
    assert [finding.severity for finding in found] == sorted(finding.severity for finding in found)
    assert [finding.name for finding in found] == ["thinking_never_closed", "kl_high"]


@pytest.fixture
def everything_said(healthy_rows: list[Row], reasoning: RunFacts, tmp_path: Path) -> list[Finding]:
    """Every finding that the changes above lead to, explained by another or not."""
    said = []
    runs = [[{**row, **change(row)} for row in healthy_rows] for _, change in SICK.values()]
    for rows in [*runs, sorted([*healthy_rows, *held_out(0.5, 0.4, 0.3, 0.1)], key=lambda row: row["step"])]:
        doctor = Doctor(reasoning, tmp_path)
        for row in rows:
            doctor.look(row)
        said += doctor.found.values()
    return said


def test_every_finding_of_the_documentation_is_led_to(everything_said: list[Finding]) -> None:
    documented = (Path(__file__).parents[3] / "docs" / "doctor.md").read_text(encoding="utf-8")
    assert {finding.name for finding in everything_said} == set(re.findall(r"^\| `(\w+)` \|", documented, re.MULTILINE))


# Much of what the doctor suggests is in force: by default, in the quickstart, or as a user has set it.
CONFIGURATIONS = {
    "quickstart": (["experiment=quickstart", "dataset.open_thinking=prefill", "model.reasoning_mode=replace"], SICK),
    "a small GPU": (
        ["model=smollm2_135m", "dataset=math", "training=small_gpu", "rewards=xml", "logging=disabled"],
        ("every problem out of reach", "completions at the limit", "failures", "gradients far above the limit"),
    ),
}


def leaves(value: Any, name: str = "") -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict):
        return [leaf for key, inner in value.items() for leaf in leaves(inner, f"{name}.{key}".lstrip("."))]
    return [(name, value)]


@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_every_remedy_changes_the_configuration_and_is_accepted(
    kind: str, healthy_rows: list[Row], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "installed", lambda package: True)
    words, sicknesses = CONFIGURATIONS[kind]
    settings = read_settings("train", words)
    (tmp_path / "config.yaml").write_text(config_yaml(settings.resolved), encoding="utf-8")
    facts = run_facts(settings.resolved, tmp_path)
    lines = set()
    for sickness in sicknesses:
        doctor = Doctor(facts, tmp_path)
        for row in healthy_rows[:40]:
            doctor.look({**row, **SICK[sickness][1](row)})
        lines |= {line for finding in doctor.found.values() for line in finding.remedy}
    assert len(lines) >= 5
    before = dict(leaves(settings.resolved))
    # Lines of different keys are typed together: one composition for each would take a minute.
    commands: list[dict[str, str]] = []
    for line in sorted(lines):
        words = dict(word.split("=", 1) for word in shlex.split(line))
        into = next((each for each in commands if not each.keys() & words.keys()), None)
        commands.append(words) if into is None else into.update(words)
    for command in commands:
        words = [f"{key}={value}" for key, value in command.items()]
        after = dict(
            leaves(load_settings("train", [f"config={tmp_path}", f"output_dir={tmp_path / 'new'}", *words]).resolved)
        )
        for key in command:
            assert any(after.get(name) != before.get(name) for name in after if name.startswith(key)), key


def test_evidence_has_figures_and_a_step(everything_said: list[Finding]) -> None:
    for finding in everything_said:
        assert re.search(r"\d", finding.evidence) and re.search(r"steps? \d+|\.json", finding.evidence), finding
        assert finding.title and finding.cause and finding.remedy


def test_what_follows_from_another_finding_is_not_told(healthy_rows: list[Row], findings_of: Any) -> None:
    cut = {"completions/clipped_ratio": 1.0, "reward": 0.0, "reward_std": 0.0, "frac_reward_zero_std": 1.0}
    rows = [{**row, **cut} for row in healthy_rows]
    assert [finding.name for finding in findings_of(rows)] == ["completions_cut_off"]
    fallen = {"entropy": 4.0, "thinking/closed": 0.0, "reward": 0.0, "reward_std": 0.0, "frac_reward_zero_std": 1.0}
    rows = [{**row, **(fallen if row["step"] > 8 else {})} for row in healthy_rows]
    assert [finding.name for finding in findings_of(rows)] == ["entropy_exploding"]
    rows = [{**row, **(fallen if row["step"] > 8 else {}), "kl": 0.5 * row["step"]} for row in healthy_rows]
    assert [finding.name for finding in findings_of(rows)] == ["kl_exploding"]
