"""`rlvr-vocab doctor`: what it prints, its exit code, and how little it imports."""

import json

import pytest

from rlvr_vocab.cli import main
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import config_yaml


@pytest.fixture
def doctor(tmp_path, capsys):
    """Exit code and output of `doctor` on a run with these rows."""

    def call(rows, *args, finished=True):
        settings = read_settings("train", ["experiment=quickstart"])
        (tmp_path / "config.yaml").write_text(config_yaml(settings.resolved), encoding="utf-8")
        (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        if finished:
            (tmp_path / "summary.json").write_text(json.dumps({"finished": True, "accuracy_before": None}))
        return main(["doctor", f"run={tmp_path}", *args]), capsys.readouterr().out

    return call


def test_a_healthy_run_ends_with_0(doctor, healthy_rows, tmp_path):
    assert doctor(healthy_rows) == (0, f"{tmp_path}: 60 rows up to step 60\nnothing wrong was found\n")


def test_a_sick_run_ends_with_1_and_says_what_to_type(doctor, healthy_rows):
    code, out = doctor([{**row, "completions/clipped_ratio": 0.97} for row in healthy_rows], finished=False)
    assert code == 1
    assert "Completions are cut off (error completions_cut_off, step 10)" in out
    assert "completions/clipped_ratio 97% in steps 1 to 10 (limit 30%), at 48 tokens" in out
    assert "  try     training.max_completion_length: twice as much" in out
    assert "the run has not finished" in out and "\x1b" not in out


def test_as_json_there_is_one_object_and_nothing_else(doctor, healthy_rows):
    code, out = doctor([{**row, "sampling/logp_gap": 0.4} for row in healthy_rows], "format=json")
    found = json.loads(out)
    assert code == 1 and found["rows"] == 60 == found["last_step"] and found["finished"] and not found["too_short"]
    [finding] = found["findings"]
    assert finding["name"] == "sampler_disagrees" and finding["step"] == 10 and finding["severity"] == "error"


@pytest.mark.parametrize(("count", "message"), [(0, "no step is logged yet"), (9, "too short to judge")])
def test_a_run_that_is_too_short_is_told_to_be(count, message, doctor, healthy_rows):
    code, out = doctor([{**row, "reward_std": 0.0} for row in healthy_rows[:count]])
    assert code == 0 and message in out and "nothing wrong" not in out
