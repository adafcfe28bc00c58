"""A run while it trains: each finding once, rows and completions on the display, alerts in W&B."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import wandb
from rich.text import Text

from rlvr_vocab.analysis.doctor.diagnose import diagnose
from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.record.metrics import RewardFact, RunFacts, RunRecord, read_rows, split_evaluations
from rlvr_vocab.runs.monitor import DisplayCallback, RunDoctor, alert
from rlvr_vocab.runs.record import run_facts
from rlvr_vocab.training.metrics.completions import CompletionRows
from rlvr_vocab.training.stage import StageContext
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.tokenizer import load_tokenizer

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
    learning_rate=1e-4,
    use_vllm=False,
    max_steps=200,
)
FOUND = Finding("kl_high", "K" * 70, "warning", "kl 0.7", "it moves too fast", "training.beta=0.1", step=30)


def healthy(step: int, **more: Any) -> dict[str, Any]:
    reward = 0.3 + 0.002 * step
    figures = {"reward": reward, "reward_std": 0.4, "frac_reward_zero_std": 0.1, "kl": 0.01, "entropy": 0.6}
    return {"step": step, "loss": 0.01, "learning_rate": 1e-4, "grad_norm": 0.3, "epoch": 0.1, **figures, **more}


def rows_with_a_high_kl(first: int, last: int) -> list[dict[str, Any]]:
    return [healthy(step, **{"kl": 0.9} if step > 30 else {}) for step in range(first, last + 1)]


def trained(doctor: RunDoctor, folder: Path, rows: list[dict[str, Any]]) -> list[str]:
    """Names of the findings while the rows are written."""
    names = []
    for row in rows:
        with (folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        names += [finding.name for finding in doctor.new_findings(row)]
    return names


def test_a_finding_is_reported_once_over_steps_stages_and_resumes(tmp_path: Path) -> None:
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
    rows, evaluations = split_evaluations(read_rows(tmp_path / "metrics.jsonl"))
    found = doctor.finish(summary)
    assert found == diagnose(RunRecord(tmp_path, FACTS, rows, evaluations, summary))
    names = [finding.name for finding in alerts]
    assert {"kl_high", *(finding.name for finding in found)} == set(names) and len(names) == len(set(names)) == 2


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


HOSTILE = "<think>6\n\x1b[2J[/b]\x9b1m\u202e</think>\\boxed{42}"


class Display:
    """Keeps its calls."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.findings: list[tuple[str, str]] = []
        self.completions: list[str] = []

    def row(self, row: Any, step: int, steps: int) -> None:
        self.rows.append((row["step"], step, steps))

    def finding(self, line: str, evidence: str) -> None:
        self.findings.append((line, evidence))

    def completion(self, text: Text) -> None:
        self.completions.append(text.plain)


class FindsAtStep3:
    def new_findings(self, row: Any) -> list[Finding]:
        found = Finding("kl_high", "KL above its limit", "warning", "kl 0.7", "", "", step=row["step"])
        return [found] if row["step"] == 3 else []


@pytest.fixture
def trainer(expand_shape: Callable[..., Path], tmp_path: Path) -> Any:
    """As much of a trainer as is looked at."""
    folder = expand_shape("qwen3", size=None)
    return SimpleNamespace(
        stage_context=StageContext(tmp_path, "form", first_step=0),
        processing_class=load_tokenizer(folder),
        policy=SimpleNamespace(layout=VocabLayout.load(folder)),
        newest_rollouts=None,
    )


@pytest.fixture
def callback(trainer: Any) -> Any:
    display = Display()
    found = DisplayCallback(trainer, display, FindsAtStep3(), in_colour=False)  # type: ignore[arg-type]
    return SimpleNamespace(display=display, log=lambda step, main=True: log(found, step, main))


def rollouts(trainer: Any, completion_ids: list[int]) -> CompletionRows:
    messages = [{"role": "user", "content": "What is 6 * 7?"}]
    prompt_ids = trainer.processing_class.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    return CompletionRows(
        prompt_ids=[prompt_ids],
        completion_ids=[completion_ids],
        completion=[""],
        solution=["42"],
        advantage=[0.0],
        rewards={"accuracy": [1.0]},
        weights={"accuracy": 0.5},
    )


def log(callback: DisplayCallback, step: int, main: bool = True, **logs: Any) -> None:
    state = SimpleNamespace(global_step=step, max_steps=200, is_world_process_zero=main)
    callback.on_log(None, state, None, logs={"loss": 0.1, "reward": 0.5, **logs})  # type: ignore[arg-type]


def test_rows_and_findings_reach_the_display_of_the_main_process_alone(callback: Any) -> None:
    for step, main in ((2, True), (2, False), (3, True)):
        callback.log(step, main)
    assert callback.display.rows == [(2, 2, 200), (3, 3, 200)]
    assert callback.display.findings == [("KL above its limit (step 3)", "kl 0.7")]


def test_a_damaged_file_and_figures_without_bounds_end_no_training(trainer: Any, tmp_path: Path) -> None:
    (tmp_path / "problems.json").write_text('{"tr')
    config = read_settings("train", ["experiment=quickstart"]).resolved
    figures = {"loss": 1e308, "reward": 1e308, "reward_std": -1e308, "grad_norm": 10**400, "step_time": 1e308}
    names: list[str] = []
    doctor = RunDoctor(run_facts(config, tmp_path), tmp_path, lambda finding: names.append(finding.name))
    callback = DisplayCallback(trainer, Display(), doctor, in_colour=False)  # type: ignore[arg-type]
    for step in range(1, 31):
        log(callback, step, **figures if step < 15 else {})
    assert "loss_not_finite" in names


def test_a_completion_is_shown_every_fifty_steps_as_soon_as_there_is_one(trainer: Any, callback: Any) -> None:
    batch = rollouts(trainer, trainer.processing_class.encode("42"))
    for step in range(1, 161):
        trainer.newest_rollouts = batch if step % 4 == 3 else None  # the others train on what was drawn before
        callback.log(step)
    shown = callback.display.completions
    assert [text.split(",")[0] for text in shown] == ["step 3", "step 51", "step 103", "step 151"]
    assert shown[0] == "step 3, reward 0.50: 42"


def test_a_terminal_obeys_no_completion_and_a_long_one_is_shortened(trainer: Any, callback: Any) -> None:
    encode, layout = trainer.processing_class.encode, trainer.policy.layout
    trainer.newest_rollouts = rollouts(trainer, [*encode(HOSTILE), layout.standard_size + 5])
    callback.log(1)
    trainer.newest_rollouts = rollouts(trainer, encode("7 ") * 5_000 + encode("end"))
    callback.log(51)
    hostile, long = callback.display.completions
    assert hostile.isprintable() and hostile.endswith("⟧")
    assert r"6\n\x1b[2J[/b]\x9b1m\u202e</think>\boxed{42}⟦" in hostile
    assert " … 8,403 characters … " in long and long.endswith("end") and len(long) < 2_000
