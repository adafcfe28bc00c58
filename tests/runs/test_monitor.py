"""A run while it trains: each finding once, rows and completions on the display."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.text import Text

from rlvr_vocab.analysis.doctor.diagnose import diagnose
from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.record.metrics import RunRecord, read_rows, split_evaluations
from rlvr_vocab.runs.record import run_facts
from rlvr_vocab.runs.stages import DisplayCallback, RunDoctor
from rlvr_vocab.training.metrics.completions import CompletionRows
from rlvr_vocab.training.stage import StageContext
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.tokenizer import load_tokenizer

FOUND = Finding("kl_high", "K" * 70, "warning", "kl 0.7", "it moves too fast", "training.beta=0.1", step=30)


def doctor_of(folder: Path) -> RunDoctor:
    return RunDoctor(run_facts(read_settings("train", ["experiment=quickstart"]).resolved, folder), folder)


def row_of(step: int) -> dict[str, Any]:
    """The KL is too high after step 30."""
    figures = {"reward": 0.3 + 0.002 * step, "reward_std": 0.4, "frac_reward_zero_std": 0.1, "entropy": 0.6}
    return {"step": step, "loss": 0.01, "learning_rate": 1e-4, "grad_norm": 0.3, "kl": 0.9 * (step > 30), **figures}


def test_a_finding_is_reported_once_over_stages_and_resumes_and_is_found_afterwards_too(tmp_path: Path) -> None:
    doctor = doctor_of(tmp_path)
    for part, new in ((range(1, 61), ["kl_high"]), (range(61, 71), []), (range(71, 91), [])):
        doctor.start()
        names = []
        for row in map(row_of, part):
            with (tmp_path / "metrics.jsonl").open("a") as file:
                file.write(json.dumps(row) + "\n")
            names += [finding.name for finding in doctor.new_findings(row)]
        assert names == new
        if part.start > 1:
            doctor = doctor_of(tmp_path)  # a resume
    summary = {"accuracy_before": 0.9, "accuracy_after": 0.1, "held_out_problems": 5_000}
    rows, evaluations = split_evaluations(read_rows(tmp_path / "metrics.jsonl"))
    found = doctor.finish(summary)
    assert found == diagnose(RunRecord(tmp_path, doctor._facts, rows, evaluations, summary))
    assert len(found) > 1


class Shown:
    """A display that keeps its calls."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.findings: list[tuple[str, str]] = []
        self.completions: list[str] = []

    def row(self, row: Any, step: int, steps: int) -> None:
        self.rows.append(row["step"])

    def finding(self, line: str, evidence: str) -> None:
        self.findings.append((line, evidence))

    def completion(self, text: Text) -> None:
        self.completions.append(text.plain)


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


def rollouts(trainer: Any, completion_ids: list[int]) -> CompletionRows:
    messages = [{"role": "user", "content": "What is 6 * 7?"}]
    prompt_ids = trainer.processing_class.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    scored = {"rewards": {"accuracy": [1.0]}, "weights": {"accuracy": 0.5}}
    return CompletionRows([prompt_ids], [completion_ids], [""], ["42"], [0.0], **scored)


def log(trainer: Any, shown: Shown, doctor: Any) -> Callable[..., None]:
    """Logs a step of a training of 200."""
    callback, unused = DisplayCallback(trainer, shown, doctor, in_colour=False), None  # type: ignore[arg-type]

    def step(number: int, main: bool = True, **logs: Any) -> None:
        state = SimpleNamespace(global_step=number, max_steps=200, is_world_process_zero=main)
        callback.on_log(unused, state, unused, logs={"loss": 0.1, "reward": 0.5, **logs})  # type: ignore[arg-type]

    return step


def test_the_main_process_shows_each_row_its_findings_and_a_completion_every_fifty_steps(trainer: Any) -> None:
    shown, batch = Shown(), rollouts(trainer, trainer.processing_class.encode("42"))
    found = SimpleNamespace(new_findings=lambda row: [replace(FOUND, title="a", step=3)] if row["step"] == 3 else [])
    step = log(trainer, shown, found)
    step(1, main=False)
    for number in range(1, 155):
        trainer.newest_rollouts = batch if number % 4 == 3 or number == 150 else None  # the others draw none
        step(number)
    assert shown.rows == list(range(1, 155)) and shown.findings == [("a (step 3)", "kl 0.7")]
    assert [text.split(",")[0] for text in shown.completions] == ["step 3", "step 51", "step 103", "step 150"]
    assert shown.completions[0] == "step 3, reward 0.50: 42"


def test_a_terminal_obeys_no_completion_and_a_long_one_is_shortened(trainer: Any) -> None:
    encode, layout, shown = trainer.processing_class.encode, trainer.policy.layout, Shown()
    step = log(trainer, shown, SimpleNamespace(new_findings=lambda row: []))
    hostile = encode("<think>6\n\x1b[2J[/b]\x9b1m\u202e</think>\\boxed{42}")
    for number, ids in ((1, [*hostile, layout.standard_size + 5]), (51, encode("7 ") * 5_000 + encode("end"))):
        trainer.newest_rollouts = rollouts(trainer, ids)
        step(number)
    escaped, long = shown.completions
    assert escaped.isprintable() and escaped.endswith("⟧")
    assert r"6⏎␛[2J[/b]<U+009B>1m<U+202E></think>\boxed{42}⟦" in escaped
    assert " … 8,403 characters … " in long and long.endswith("end") and len(long) < 2_000
