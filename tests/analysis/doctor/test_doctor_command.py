"""`rlvr-vocab doctor`: what it prints, its exit code, and how little it imports."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlvr_vocab.cli import main
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import config_yaml
from rlvr_vocab.config.sections import RunSettings

Row = dict[str, Any]


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """The folder of a run with these rows; more words change its configuration."""

    def make(rows: list[Row], *words: str, finished: bool = True) -> Path:
        folder = tmp_path / "run"
        folder.mkdir()
        settings = read_settings("train", ["experiment=quickstart", *words])
        assert isinstance(settings, RunSettings)
        (folder / "config.yaml").write_text(config_yaml(settings.resolved), encoding="utf-8")
        (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        if finished:
            (folder / "summary.json").write_text(json.dumps({"finished": True, "accuracy_before": None}))
        return folder

    return make


def test_a_healthy_run_ends_with_0(
    make_run: Callable[..., Path], healthy_rows: list[Row], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_run(healthy_rows)
    assert main(["doctor", f"run={folder}"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{folder}: 60 rows up to step 60", "nothing wrong was found"]


def test_a_sick_run_ends_with_1_and_says_what_to_type(
    make_run: Callable[..., Path], healthy_rows: list[Row], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_run([{**row, "completions/clipped_ratio": 0.97} for row in healthy_rows], finished=False)
    assert main(["doctor", f"run={folder}"]) == 1
    out = capsys.readouterr().out
    assert "Completions are cut off (error completions_cut_off, step 10)" in out
    assert "completions/clipped_ratio 97% in steps 1 to 10 (limit 30%), at 48 tokens" in out
    assert "  try     training.max_completion_length: twice as much" in out
    assert "the run has not finished" in out and "\x1b" not in out


@pytest.mark.parametrize(
    ("known", "said"), [((), "is not logged"), ((1,), "is known at step 1 alone"), ((1, 51), None), (range(61), None)]
)
def test_a_kl_that_is_not_watched_is_told_once_and_is_no_finding(
    known: Sequence[int],
    said: str | None,
    make_run: Callable[..., Path],
    healthy_rows: list[Row],
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [{name: row[name] for name in row if name != "kl"} for row in healthy_rows]
    folder = make_run([{**row, "kl": 0.01} if row["step"] in known else row for row in rows])
    line = f"not watched: the KL to the initial model, which {said}; training.kl_log_steps=15 logs it"
    assert main(["doctor", f"run={folder}"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["nothing wrong was found", *([line] if said else [])]
    assert main(["doctor", f"run={folder}", "format=json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["not_watched"] == ([line] if said else []) and told["findings"] == []
    assert read_settings("train", ["training.kl_log_steps=15"]).training.kl_log_steps == 15


def test_as_json_there_is_one_object_and_nothing_else(
    make_run: Callable[..., Path], healthy_rows: list[Row], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_run([{**row, "sampling/logp_gap": 0.4} for row in healthy_rows])
    assert main(["doctor", f"run={folder}", "format=json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["rows"] == 60 and told["last_step"] == 60 and told["finished"] and not told["too_short"]
    [finding] = told["findings"]
    assert finding["name"] == "sampler_disagrees" and finding["step"] == 10 and finding["severity"] == "error"
    assert set(finding) == {"name", "title", "severity", "evidence", "cause", "remedy", "step"}


@pytest.mark.parametrize(("count", "said"), [(0, "no step is logged yet"), (1, "1 row up"), (9, "too short to judge")])
def test_a_run_that_is_too_short_is_told_to_be(
    count: int, said: str, make_run: Callable[..., Path], healthy_rows: list[Row], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_run([{**row, "reward_std": 0.0} for row in healthy_rows[:count]])
    assert main(["doctor", f"run={folder}"]) == 0
    shown = capsys.readouterr().out
    assert said in shown and "nothing wrong" not in shown


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metrics.jsonl", "3\n{}\n"),
        ("metrics.jsonl", '{"step": null, "reward": 0.5}\n'),
    ],
)
def test_a_damaged_file_is_named_in_one_line(
    name: str,
    content: str,
    make_run: Callable[..., Path],
    healthy_rows: list[Row],
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = make_run(healthy_rows)
    (folder / name).write_text(content)
    assert main(["doctor", f"run={folder}"]) == 2
    told = capsys.readouterr()
    assert name in told.err and len(told.err.splitlines()) == 1 and not told.out


@pytest.mark.parametrize("words", [["run=nowhere"], ["run=."], [], ["run=.", "format=yaml"]])
def test_bad_input_ends_with_2(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", *words]) == 2


def test_it_starts_without_anything_heavy(make_run: Callable[..., Path], healthy_rows: list[Row]) -> None:
    folder = make_run([{**row, "reward_std": 0.0} for row in healthy_rows])
    heavy = ("torch", "transformers", "trl", "datasets", "pandas", "matplotlib", "scipy")
    code = (
        "import sys; from rlvr_vocab.cli import main; "
        f"assert main(['doctor', 'run={folder}']) == 1; print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
