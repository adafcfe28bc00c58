"""Rows of `metrics.jsonl`, as everybody who reads along sees them too."""

import json
from types import SimpleNamespace

from rlvr_vocab.training.metrics.metrics_file import MetricsFile, logged_row
from rlvr_vocab.training.stage import StageContext


def state(step=1, main=True):
    return SimpleNamespace(global_step=step, max_steps=10, is_world_process_zero=main)


def test_numbers_that_json_has_not_are_written_as_null(tmp_path):
    callback = MetricsFile(tmp_path / "metrics.jsonl", StageContext(tmp_path))
    callback.on_log(None, state(3), None, logs={"loss": float("nan"), "kl": float("inf"), "reward": 0.5, "epoch": 1})
    [line] = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert "NaN" not in line and "Infinity" not in line
    assert json.loads(line) == {"step": 3, "loss": None, "kl": None, "reward": 0.5, "epoch": 1}


def test_the_closing_summary_and_other_processes_write_nothing(tmp_path):
    callback = MetricsFile(tmp_path / "metrics.jsonl", StageContext(tmp_path))
    callback.on_log(None, state(), None, logs={"train_runtime": 3.0, "train_loss": 0.1})
    callback.on_log(None, state(main=False), None, logs={"loss": 0.1})
    callback.on_log(None, state(), None, logs=None)
    assert not (tmp_path / "metrics.jsonl").exists()


def test_rows_past_the_step_that_training_starts_from_are_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({"step": step, "loss": step / 2}) + "\n" for step in (1, 2, 3, 4)))
    MetricsFile(path, StageContext(tmp_path)).on_train_begin(None, state(2), None)
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"step": 1, "loss": 0.5},
        {"step": 2, "loss": 1.0},
    ]


def test_a_row_that_was_cut_by_a_kill_does_not_stop_the_next_run(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "loss": 0.5}\n{"step": 2, "lo')
    MetricsFile(path, StageContext(tmp_path)).on_train_begin(None, state(1), None)
    assert path.read_text() == '{"step": 1, "loss": 0.5}\n'


def test_a_row_names_the_step_of_the_run_and_that_of_its_stage(tmp_path):
    place = StageContext(tmp_path, "form", first_step=20)
    row = {"step": 23, "stage": "form", "stage_step": 3, "loss": 0.5}
    assert logged_row(place, state(3), {"loss": 0.5}) == row
    MetricsFile(tmp_path / "metrics.jsonl", place).on_log(None, state(3), None, logs={"loss": 0.5})
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == row
    assert logged_row(place, state(3), {"train_runtime": 1.0}) is None
