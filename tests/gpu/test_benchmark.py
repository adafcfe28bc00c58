"""`make benchmark-gpu` at toy size: what it counts, and that it goes on where it was stopped."""

import json

import pytest

from .conftest import ROOT, run_python


def test_a_line_is_measured_once_and_kept_with_its_traces(tmp_path):
    words = (str(ROOT / "benchmarks" / "gpu.py"), "--shape", "toy", "--out", str(tmp_path), "--only", "n = V, frozen")
    first, again = run_python(*words), run_python(*words)
    assert first.returncode == 0, first.stderr[-3000:]
    [file] = tmp_path.glob("*.json")
    content = json.loads(file.read_text())
    [(key, row)] = content["rows"].items()
    assert key == "toy: n = V, frozen" and f"{key}: measured" in first.stdout
    assert again.returncode == 0 and ": measured" not in again.stdout and key in again.stdout
    step = row["step"]
    assert step["seconds"] == pytest.approx(step["forward"] + step["backward"] + step["optimizer"], rel=0.5)
    assert row["sampling"]["tokens_per_second"] > 0
    assert row["gib"].keys() >= {"loading", "sampling", "forward", "backward", "optimizer"}
    traces = sorted(each.name for each in tmp_path.glob("*/*/*.json.gz"))
    assert traces == ["sampling.json.gz", "step.json.gz"]
