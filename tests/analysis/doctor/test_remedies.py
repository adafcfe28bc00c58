"""What the doctor suggests is not in force already, and the program takes it: typed over the run's configuration."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlvr_vocab.analysis.doctor.diagnose import diagnose
from rlvr_vocab.checks import machine
from rlvr_vocab.cli import main
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import config_yaml
from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.record.metrics import RunFacts, RunRecord
from rlvr_vocab.runs.record import run_facts

Row = dict[str, Any]


@pytest.fixture(autouse=True)
def everything_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "installed", lambda package: True)
    monkeypatch.chdir(tmp_path)


def recorded(folder: Path, *words: str) -> RunFacts:
    settings = read_settings("train", words)
    assert isinstance(settings, RunSettings)
    (folder / "config.yaml").write_text(config_yaml(settings.resolved), encoding="utf-8")
    return run_facts(settings.resolved, folder)


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
    assert run_facts(partial, tmp_path).takes("training.beta=0.0")


def test_a_stage_takes_what_its_own_keys_leave(tmp_path: Path) -> None:
    stages = "stages=[{name: one, training: {beta: 0.01, max_completion_length: 20}}]"
    facts = recorded(tmp_path, "experiment=quickstart", stages)
    assert facts.takes("training.beta=0.01") and not facts.stages[0].takes("training.beta=0.01")
    assert facts.stages[0].takes("training.max_completion_length=48")
    assert not facts.takes("training.max_completion_length=48")


def test_a_longer_completion_stays_within_the_context(healthy_rows: list[Row], facts: RunFacts, tmp_path: Path) -> None:
    rows = tuple({**row, "completions/clipped_ratio": 0.9} for row in healthy_rows)
    for room, line in ((None, 48), (1000, 48), (30, 30)):
        [finding] = diagnose(RunRecord(tmp_path, replace(facts, longest_completion=room), rows))
        assert finding.remedy[0] == f"training.max_completion_length={line}"


def test_the_doctor_says_where_nothing_is_left_to_set(
    healthy_rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(tmp_path, "experiment=quickstart")
    lines = [json.dumps({**row, "sampling/logp_gap": 0.4}) for row in healthy_rows]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    assert main(["doctor", f"run={tmp_path}"]) == 1
    assert "can set against it, it has" in capsys.readouterr().out
