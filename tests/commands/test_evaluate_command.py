"""`rlvr-vocab evaluate` from its command line: results that go on, several checkpoints, what is refused."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rlvr_vocab.cli import main
from rlvr_vocab.commands import evaluate
from rlvr_vocab.terminal import make_console
from tests.settings import refusal

PROBLEMS = 6


@pytest.fixture(scope="module")
def checkpoint(expand_shape, tmp_path_factory):
    return Path(shutil.copytree(expand_shape("llama", size=None), tmp_path_factory.mktemp("models") / "a" / "model"))


@pytest.fixture(scope="module")
def other(checkpoint):
    """The same model with other weights."""
    folder = Path(shutil.copytree(checkpoint, checkpoint.parents[1] / "b" / "model"))
    weights = load_file(folder / "model.safetensors")
    torch.manual_seed(0)
    moved = {name: each + 0.05 * torch.randn_like(each) for name, each in weights.items()}
    save_file(moved, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture
def words(tmp_path):
    rows = [{"problem": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(PROBLEMS - 1)]
    path = tmp_path / "sums.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in [*rows, {"problem": "Why?", "answer": "?"}]))
    dataset = [f"dataset.name={path}", "dataset.columns.reasoning=null", "dataset.eval_fraction=0", "split=train"]
    return [*dataset, "max_new_tokens=12", "samples=2", "batch_size=4"]


def evaluated(checkpoint, out, words):
    assert main(["evaluate", f"checkpoint={checkpoint}", f"out={out}", *words]) == 0
    summary = json.loads((out / "summary.json").read_text())
    return summary


def test_a_summary_has_every_figure_with_its_interval(checkpoint, words, tmp_path, capsys):
    summary = evaluated(checkpoint, tmp_path / "out", words)
    results = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert sorted((each["problem"], each["sample"]) for each in results) == [
        (p, s) for p in range(PROBLEMS) for s in (0, 1)
    ]
    assert (summary["problems"], summary["samples"], summary["gradable"]) == (PROBLEMS, 2, 2 * (PROBLEMS - 1))
    assert summary["problems_without_score"] == 1
    assert summary["mean_tokens"] == sum(each["tokens"] for each in results) / len(results)
    assert summary["figures"].keys() >= {"pass@1", "pass@2", "maj@2", "length", "cut_off", "format", "reasoning_share"}
    assert all(each["low"] <= each["estimate"] <= each["high"] for each in summary["figures"].values())
    assert summary["accuracy"] == summary["figures"]["avg@2"]["estimate"]
    assert summary["figures"]["avg@2"]["problems"] == PROBLEMS - 1
    shown = capsys.readouterr().out
    assert "accuracy 0.0% on 6 problems, 2 samples each, 10 of 12 answers gradable" in shown
    for share in (0.05, 0.9):
        ended = {"estimate": share, "low": 0, "high": 1, "problems": PROBLEMS}
        evaluate._print_figures({**summary, "figures": {"ended_in_call": ended}}, tmp_path, make_console())
        assert ("90% of the answers end in a call" in capsys.readouterr().out) == (share == 0.9)


def test_a_killed_evaluation_goes_on_and_ends_like_an_undisturbed_one(checkpoint, words, tmp_path, monkeypatch, capsys):
    whole, path = evaluated(checkpoint, tmp_path, words), tmp_path / "results.jsonl"
    content = path.read_bytes()
    path.write_bytes(b"".join(content.splitlines(keepends=True)[:4]) + b'{"problem": 4, "samp')
    (tmp_path / "summary.json").unlink()
    capsys.readouterr()
    assert evaluated(checkpoint, tmp_path, words) == whole
    assert f"goes on from 4 of 12 answers in {path}" in capsys.readouterr().out
    assert path.read_bytes() == content
    monkeypatch.setattr(evaluate, "load_checkpoint", None)  # a finished one loads no model
    assert evaluated(checkpoint, tmp_path, words) == whole


def test_a_limit_without_room_is_refused_and_leaves_nothing(other, words, tmp_path, error_of):
    config = json.loads((other / "config.json").read_text())
    short = Path(shutil.copytree(other, tmp_path / "short" / "model"))
    (short / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 200}))
    out = tmp_path / "out"
    error = error_of("evaluate", f"checkpoint={short}", f"out={out}", *words, "max_new_tokens=199")
    longest = re.search(r"its (\d+) tokens and max_new_tokens=199 do not fit the model's context of 200", error)
    assert longest is not None and not out.exists()
    evaluated(short, out, [*words, f"max_new_tokens={200 - int(longest[1])}"])


def test_settings_that_a_killed_start_has_left_bind_nobody_and_a_foreign_summary_stays(
    checkpoint, words, tmp_path, error_of
):
    out = tmp_path / "out"
    out.mkdir()
    (out / "settings.json").write_text('{"temperature": 0.1}')
    assert evaluated(checkpoint, out, words)["temperature"] == 1.0
    run = tmp_path / "run"
    run.mkdir()
    (run / "summary.json").write_text("{}")
    error = error_of("evaluate", f"checkpoint={checkpoint}", f"out={run}", *words)
    assert f"out={run}: holds a summary.json without its results.jsonl" in error
    assert (run / "summary.json").read_text() == "{}"


def test_results_of_another_question_are_neither_mixed_nor_overwritten(checkpoint, other, words, tmp_path, error_of):
    out = tmp_path / "out"
    evaluated(checkpoint, out, words)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    for change, word in (
        (["temperature=0.5"], "temperature=1.0 (now 0.5)"),
        (["seed=7"], "other problems, seed=42 (now 7)"),
        (["max_samples=5"], "problems=6 (now 5), other problems"),
        ([f"checkpoint={other}"], "other weights"),
    ):
        error = error_of("evaluate", f"checkpoint={checkpoint}", f"out={out}", *words, *change)
        assert f"out={out}: holds an evaluation with {word}; choose another out, or delete it" in error
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    (out / "settings.json").unlink()
    error = error_of("evaluate", f"checkpoint={checkpoint}", f"out={out}", *words)
    assert "holds an evaluation with other weights" in error


def test_vllm_is_refused_where_it_cannot_sample(model_folder, monkeypatch):
    words = [f"checkpoint={model_folder()}", "dataset=gsm8k", "backend=vllm"]
    monkeypatch.setattr("rlvr_vocab.errors.installed", lambda package: False)
    assert "backend=vllm: vllm is not installed" in refusal("evaluate", words)
    monkeypatch.setattr("rlvr_vocab.errors.installed", lambda package: True)
    monkeypatch.setattr("rlvr_vocab.config.checks.commands.check_checkpoint", lambda *_: None)
    monkeypatch.setattr("rlvr_vocab.config.checks.commands.is_adapter", lambda folder: True)
    assert "is an adapter: fold it into its base first, rlvr-vocab merge checkpoint=" in refusal("evaluate", words)
