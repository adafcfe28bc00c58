"""Rows of `metrics.jsonl`, as everybody who reads along sees them too."""

import json
from types import SimpleNamespace

import pytest

from rlvr_vocab.training.stage import MetricsFile, StageContext


def state(step=1, main=True, history=()):
    return SimpleNamespace(global_step=step, max_steps=10, is_world_process_zero=main, log_history=list(history))


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


HISTORY = [{"loss": 0.5, "step": 1}, {"eval_reward": float("nan"), "step": 1}, {"loss": 1.0, "step": 2}]


@pytest.mark.parametrize("before", [None, "", '{"step": 1, "lo', '{"step": 1, "loss": 7}\n{"step": 9, "loss": 7}\n'])
def test_a_training_that_goes_on_has_the_rows_of_its_checkpoint_whatever_was_in_the_file(before, tmp_path):
    path = tmp_path / "metrics.jsonl"
    if before is not None:
        path.write_text(before)
    MetricsFile(path, StageContext(tmp_path)).on_train_begin(None, state(2, history=HISTORY), None)
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"step": 1, "loss": 0.5},
        {"step": 1, "eval/reward": None},
        {"step": 2, "loss": 1.0},
    ]


def test_the_rows_of_earlier_stages_stay_and_are_named_where_they_are_lost(tmp_path, caplog):
    path, place = tmp_path / "metrics.jsonl", StageContext(tmp_path, "form", first_step=20)
    path.write_text('{"step": 20, "loss": 7}\n{"step": 21, "loss": 7}\n')
    callback, now = MetricsFile(path, place), state(1, history=HISTORY[:1])
    callback.on_train_begin(None, now, None)
    own = {"step": 21, "stage": "form", "stage_step": 1, "loss": 0.5}
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{"step": 20, "loss": 7}, own]
    assert not caplog.records
    path.unlink()
    callback.on_train_begin(None, now, None)
    assert json.loads(path.read_text()) == own and str(path) in caplog.text
