"""The doctor beside a training: what is wrong is told once, over resumes and stages, and to W&B where it is on."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import wandb

from rlvr_vocab.analysis.doctor.diagnose import diagnose
from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.record.metrics import RewardFact, RunFacts, RunRecord, divided, read_rows
from rlvr_vocab.runs.monitor import RunDoctor, alert

FACTS = RunFacts(
    exp_name="a_run",
    seed=1,
    model="tiny",
    dataset="arithmetic",
    reasoning_vocab_size=0,
    think_tags=("<think>", "</think>"),
    rewards=(RewardFact("accuracy", 1.0, False),),
    num_generations=8,
    max_completion_length=48,
    temperature=1.0,
    learning_rate=1e-4,
    lr_scheduler_type="constant",
    beta=0.04,
    max_grad_norm=1.0,
    num_iterations=1,
    use_vllm=False,
    max_steps=200,
)
FOUND = Finding("kl_high", "K" * 70, "warning", "kl 0.7", "it moves too fast", ("training.beta=0.1",), step=30)


def healthy(step: int, **more: Any) -> dict[str, Any]:
    reward = 0.3 + 0.002 * step
    figures = {"reward": reward, "reward_std": 0.4, "frac_reward_zero_std": 0.1, "kl": 0.01, "entropy": 0.6}
    return {"step": step, "loss": 0.01, "learning_rate": 1e-4, "grad_norm": 0.3, "epoch": 0.1, **figures, **more}


def rows_with_a_high_kl(first: int, last: int) -> list[dict[str, Any]]:
    return [healthy(step, **{"kl": 0.9} if step > 30 else {}) for step in range(first, last + 1)]


def trained(doctor: RunDoctor, folder: Path, rows: list[dict[str, Any]]) -> list[str]:
    """Names of what is told while the rows are written."""
    told = []
    for row in rows:
        with (folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        told += [finding.name for finding in doctor.new_findings(row)]
    return told


def test_a_finding_is_told_once_over_steps_stages_and_resumes(tmp_path: Path) -> None:
    alerts: list[Finding] = []
    doctor = RunDoctor(FACTS, tmp_path, alerts.append)
    doctor.start()
    assert trained(doctor, tmp_path, rows_with_a_high_kl(1, 60)) == ["kl_high"]
    doctor.start()  # the next stage
    assert trained(doctor, tmp_path, rows_with_a_high_kl(61, 70)) == []
    resumed = RunDoctor(FACTS, tmp_path, alerts.append)
    resumed.start()
    assert trained(resumed, tmp_path, rows_with_a_high_kl(71, 90)) == []
    assert [finding.name for finding in alerts] == ["kl_high"]


def test_live_and_afterwards_agree(tmp_path: Path) -> None:
    alerts: list[Finding] = []
    doctor = RunDoctor(FACTS, tmp_path, alerts.append)
    doctor.start()
    trained(doctor, tmp_path, rows_with_a_high_kl(1, 60))
    summary = {"accuracy_before": 0.9, "accuracy_after": 0.1, "held_out_problems": 5_000}
    rows, evaluations = divided(read_rows(tmp_path / "metrics.jsonl"))
    found = doctor.finish(summary)
    assert found == diagnose(RunRecord(tmp_path, FACTS, rows, evaluations, summary))
    names = [finding.name for finding in alerts]
    assert {"kl_high", *(finding.name for finding in found)} == set(names) and len(names) == len(set(names)) == 2


def test_a_healthy_run_is_left_in_peace(tmp_path: Path) -> None:
    doctor = RunDoctor(FACTS, tmp_path, lambda finding: pytest.fail(f"{finding}"))
    doctor.start()
    trained(doctor, tmp_path, [healthy(step) for step in range(1, 101)])
    assert doctor.finish({"accuracy_before": 0.3, "accuracy_after": 0.5, "held_out_problems": 500}) == []


def test_a_row_costs_little_however_long_the_run(tmp_path: Path) -> None:
    doctor = RunDoctor(FACTS, tmp_path, lambda finding: None)
    took = []
    for step in range(1, 2_001):
        started = time.perf_counter()
        doctor.new_findings(healthy(step, reward=0.5 + 0.01 * (step % 7)))
        took.append(time.perf_counter() - started)
    assert sorted(took[-500:])[250] < 0.005


@pytest.fixture
def settings() -> Any:
    return SimpleNamespace(exp_name="a_run", logging=SimpleNamespace(report_to="wandb"))


def test_an_alert_is_in_what_an_offline_run_would_send(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = wandb.init(project="a", mode="offline", dir=str(tmp_path))
    alert(settings, FOUND)
    alert(settings, replace(FOUND, severity="error", title="worse"))
    run.finish()
    wandb.teardown()  # only then all of it is on disk
    [path] = tmp_path.glob("wandb/offline-run-*/*.wandb")
    written = path.read_bytes()
    assert b"K" * 63 in written and b"K" * 64 not in written  # the longest title that W&B takes
    assert b"a_run: kl 0.7\nit moves too fast\ntraining.beta=0.1" in written
    assert written.count(b"WARN") == written.count(b"ERROR") == 1


def test_without_wandb_nothing_is_sent(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    alert(settings, FOUND)  # on, but no run has been started
    monkeypatch.setattr(wandb, "run", SimpleNamespace(alert=lambda **_: pytest.fail("an alert was sent")))
    settings.logging.report_to = "none"
    alert(settings, FOUND)
