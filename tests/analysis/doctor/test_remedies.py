"""What the doctor suggests is not in force already, the program takes it, and it keeps the run's other rewards."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.analysis.doctor.reward_functions import rewards_line
from rlvr_vocab.checks import machine
from rlvr_vocab.checks.remedies import checked_facts
from rlvr_vocab.cli import main
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import config_yaml
from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.record.metrics import RewardFact, RunFacts
from rlvr_vocab.runs.record import run_facts

pytestmark = pytest.mark.slow

Row = dict[str, Any]
OWN = Path(__file__).with_name("own_rewards.py")


@pytest.fixture(autouse=True)
def everything_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "installed", lambda package: True)
    monkeypatch.chdir(tmp_path)


def recorded(folder: Path, *words: str) -> RunFacts:
    settings = read_settings("train", words)
    assert isinstance(settings, RunSettings)
    (folder / "config.yaml").write_text(config_yaml(settings.resolved), encoding="utf-8")
    return checked_facts(run_facts(settings.resolved, folder), folder)


@pytest.mark.parametrize(
    ("line", "taken"),
    [
        ("model.preserve_odds=true", False),  # by default
        ("training.bf16=false", False),
        ("rewards=accuracy", False),
        ("training.num_generations=16", True),
        ("training.num_generations=48", False),  # does not divide a batch of 128
        ("dataset=math", False),  # the warm-up needs worked solutions
        ("model.lora.r=8", False),  # there is no adapter
        ("training.temperature=0", False),
        ("training.beta=0.01", True),
    ],
)
def test_what_is_in_force_or_refused_is_not_taken(line: str, taken: bool, tmp_path: Path) -> None:
    assert recorded(tmp_path, "experiment=quickstart").takes(line) == taken


def test_what_is_wrong_on_this_machine_alone_is_no_reason_against_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = recorded(tmp_path, "training=small_gpu", "training.use_vllm=true")
    monkeypatch.setattr(machine, "installed", lambda package: False)
    assert facts.takes("training.beta=0.01") and not facts.takes("training.beta=0.0")
    (tmp_path / "config.yaml").write_text("model: {}\ndataset: {}\ntraining: {}\n")  # composes no more
    partial = {"model": {}, "dataset": {}, "training": {}}
    assert checked_facts(run_facts(partial, tmp_path), tmp_path).takes("training.beta=0.0")


def test_a_stage_takes_what_its_own_keys_leave(tmp_path: Path) -> None:
    stages = "stages=[{name: one, training: {beta: 0.01, max_completion_length: 20}}]"
    facts = recorded(tmp_path, "experiment=quickstart", stages)
    assert facts.takes("training.beta=0.01") and not facts.stages[0].takes("training.beta=0.01")
    assert facts.stages[0].takes("training.max_completion_length=48")
    assert not facts.takes("training.max_completion_length=48")


def test_the_doctor_says_where_nothing_is_left_to_set(
    healthy_rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(tmp_path, "experiment=quickstart")
    lines = [json.dumps({**row, "sampling/logp_gap": 0.4}) for row in healthy_rows]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    assert main(["doctor", f"run={tmp_path}"]) == 1
    assert "can set against it, it has" in capsys.readouterr().out


REWARDS = (
    RewardFact("accuracy", 2.0, False, "accuracy", more={"params": {"answer_from": ["answer_tag", "box"]}}),
    RewardFact("my_format", 0.5, False, f"{OWN}:constant", full_mark=0.5, more={"full_mark": 0.5, "deadline": 20}),
    RewardFact("boxed", 0.1, True, "boxed", more={"adaptive": {"window": 16}}),
    RewardFact("forbidden_text", 1.0, False, "forbidden_text", more={"params": {"texts": ["it's $5", 'a "b"', "1"]}}),
)
CHANGES: tuple[tuple[str, Row], ...] = (
    ("verifier_timeouts", {"rewards/my_format/timeouts": 3.0}),
    ("rows_skipped", {"rewards/my_format/failures": 3.0}),
    ("format_reward_zero", {"rewards/my_format/mean": 0.0, "rewards/my_format/std": 0.0}),
    ("mode_collapse", {"completions/duplicates": 0.87}),
    ("scoring_slow", {"step_time": 9.0, "time/rewards": 8.0}),
    ("reward_dominated", {"rewards/boxed/std": 300.0}),
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
    name: str, change: Row, rows_with: Callable[..., list[Row]], findings_of: Callable[..., list[Finding]]
) -> None:
    scored = {f"rewards/{each.name}/{figure}": 0.4 for each in REWARDS for figure in ("mean", "std")}
    rows = rows_with(lambda row: {**scored, **row, **change})
    [finding] = [each for each in findings_of(rows, rewards=REWARDS) if each.name == name]
    lines = [shlex.split(line) for line in finding.remedy if "rewards=" in line]
    assert lines
    for words in lines:
        functions = typed_rewards(*words)
        assert functions[0]["params"]["answer_from"] == ["answer_tag", "box"] and functions[0]["weight"] == 2.0
        assert {"boxed", "forbidden_text"} <= {each["name"] for each in functions}
