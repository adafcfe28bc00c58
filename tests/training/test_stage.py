"""Steps count through the stages of a run, in rows and for Weights & Biases; a stage may end early."""

import json
import sys
from types import SimpleNamespace

import pytest
from transformers import TrainerControl, TrainerState
from transformers.integrations import TensorBoardCallback, WandbCallback

from rlvr_vocab.errors import UserError
from rlvr_vocab.training.settings import UntilSettings
from rlvr_vocab.training.stage import (
    MetricsFile,
    StageContext,
    StopEarly,
    count_run_steps,
    record_tracker,
    start_trackers,
    tracker_records,
)


def state(step=1, main=True, history=()):
    return TrainerState(global_step=step, is_world_process_zero=main, log_history=list(history))


def rows_in(path):
    return [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]


def test_each_row_is_written_once_with_numbers_that_json_has(tmp_path):
    callback = MetricsFile(tmp_path / "metrics.jsonl", StageContext(tmp_path))
    callback.on_log(None, state(3), None, logs={"train_runtime": 3.0, "train_loss": 0.1})
    callback.on_log(None, state(3, main=False), None, logs={"loss": 0.1})
    callback.on_log(None, state(3), None, logs={"loss": float("nan"), "kl": float("inf"), "reward": 0.5, "epoch": 1})
    assert rows_in(callback.path) == [{"step": 3, "loss": None, "kl": None, "reward": 0.5, "epoch": 1}]


HISTORY = [{"loss": 0.5, "step": 1}, {"eval_reward": float("nan"), "step": 1}, {"loss": 1.0, "step": 2}]


@pytest.mark.parametrize("before", ['{"step": 1, "lo', '{"step": 1, "loss": 7}\n{"step": 9, "loss": 7}\n'])
def test_a_training_that_goes_on_has_the_rows_of_its_checkpoint_whatever_was_in_the_file(before, tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(before)
    MetricsFile(path, StageContext(tmp_path)).on_train_begin(None, state(2, history=HISTORY), None)
    assert rows_in(path) == [{"step": 1, "loss": 0.5}, {"step": 1, "eval/reward": None}, {"step": 2, "loss": 1.0}]


def test_the_rows_of_earlier_stages_stay_and_are_named_where_they_are_lost(tmp_path, caplog):
    path, place = tmp_path / "metrics.jsonl", StageContext(tmp_path, "form", first_step=20)
    path.write_text('{"step": 20, "loss": 7}\n{"step": 21, "loss": 7}\n')
    callback, now = MetricsFile(path, place), state(1, history=HISTORY[:1])
    callback.on_train_begin(None, now, None)
    own = {"step": 21, "stage": "form", "stage_step": 1, "loss": 0.5}
    assert rows_in(path) == [{"step": 20, "loss": 7}, own] and not caplog.records
    path.unlink()
    callback.on_train_begin(None, now, None)
    assert rows_in(path) == [own] and str(path) in caplog.text


@pytest.mark.parametrize("of_an_evaluation", ["eval_problems", "eval_reward"])
def test_a_tracker_counts_the_steps_of_the_run_and_is_sent_no_row_twice(of_an_evaluation, tmp_path, monkeypatch):
    """The second stage begins after step 40 of the run; W&B had row 42 before the resume, TensorBoard row 41."""
    record_tracker(tmp_path, "wandb", id="abc", last_step=42)
    record_tracker(tmp_path, "tensorboard", last_step=41)
    callbacks = [WandbCallback(), TensorBoardCallback.__new__(TensorBoardCallback)]
    sent = {type(callback): [] for callback in callbacks}
    for callback in callbacks:
        kind = type(callback)
        monkeypatch.setattr(
            kind, "on_log", lambda self, args, state, control, logs: sent[type(self)].append((state.global_step, logs))
        )
    callbacks[1].logging_dir = None
    trainer = SimpleNamespace(callback_handler=SimpleNamespace(callbacks=callbacks))
    count_run_steps(trainer, StageContext(tmp_path, "long", first_step=40))
    assert callbacks[1].logging_dir == str(tmp_path / "tensorboard")
    for step in (1, 2, 3):
        for callback in callbacks:
            callback.on_log(None, state(step), None, logs={"loss": float(step)})
    assert [[step for step, _ in rows] for rows in sent.values()] == [[43], [42, 43]]
    assert tracker_records(tmp_path) == {"wandb": {"id": "abc", "last_step": 43}, "tensorboard": {"last_step": 43}}
    for step in (2, 3):
        callbacks[0].on_log(None, state(step), None, logs={of_an_evaluation: 5})
    assert sent[WandbCallback][1:] == [(43, {of_an_evaluation: 5})]


def test_a_resumed_run_goes_on_in_the_same_runs_of_wandb_and_mlflow(tmp_path, monkeypatch):
    given = []
    run = SimpleNamespace(id="abc", info=SimpleNamespace(run_id="def"))
    mlflow = SimpleNamespace(
        active_run=lambda: None, set_experiment=given.append, start_run=lambda **keys: given.append(keys) or run
    )
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setattr("wandb.init", lambda **keys: given.append(keys) or run)
    for _ in range(2):
        start_trackers(tmp_path, ["wandb", "mlflow"], "project", "name", mode="offline")
    assert [keys["id"] for keys in given[::3]] == [None, "abc"] and given[0]["resume"] == "allow"
    assert [keys["run_id"] for keys in given[2::3]] == [None, "def"] and given[1] == "project"


def test_a_figure_of_held_out_problems_ends_a_stage_by_the_name_that_it_is_logged_by():
    history = [*rows(0.1), {"eval_accuracy": 0.4}, *rows(0.1), {"eval_accuracy": 0.6}]
    until, control = UntilSettings("eval/accuracy", above=0.5, window=1), TrainerControl()
    assert not until.reached(history[:3])
    StopEarly(until).on_log(None, state(history=history), control, logs={"train_loss": 0.0})
    assert not control.should_training_stop
    StopEarly(until).on_log(None, state(history=history), control, logs={"eval_accuracy": 0.6, "eval_problems": 5})
    assert control.should_training_stop


def test_a_metric_that_no_step_logs_ends_a_stage_at_its_first_logged_step():
    for metric in ("reward", "kl", "rewards/mine/failures", "thinking/closed", "eval/reward"):
        until = StopEarly(UntilSettings(metric, below=0.0))
        until.on_log(None, state(history=rows(0.1)), TrainerControl(), logs={"loss": 0.0})
    until = StopEarly(UntilSettings("rewad", above=1.0))
    until.on_log(None, state(history=[{"eval_reward": 0.4}]), TrainerControl(), logs={"eval_problems": 5})
    with pytest.raises(UserError, match=r"until\.metric=rewad: no step logs that; did you mean reward"):
        until.on_log(None, state(history=rows(0.1)), TrainerControl(), logs={"loss": 0.0})


def rows(*values):
    return [{"reward": value, "loss": 0.0} for value in values]


@pytest.mark.parametrize(
    ("until", "values", "reached"),
    [
        (UntilSettings("reward", above=0.5, window=3), (0.9, 0.9), False),  # the window is not yet full
        (UntilSettings("reward", above=0.5, window=3), (0.4, 0.5, 0.7), True),
        (UntilSettings("reward", above=0.5, window=3), (0.9, 0.9, 0.5, 0.4, 0.5), False),  # the last three alone
        (UntilSettings("reward", above=0.5, window=1), (0.5,), False),
        (UntilSettings("reward", below=0.1, window=2), (0.2, 0.0, 0.1), True),
        (UntilSettings("kl", below=0.1, window=1), (0.0, 0.2), False),  # no row has it
    ],
)
def test_the_mean_of_the_window_decides(until, values, reached):
    assert until.reached(rows(*values)) is reached
