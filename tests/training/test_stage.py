"""Steps count through the stages of a run, in rows and for Weights & Biases; a stage may end early."""

import gc
import weakref
from types import SimpleNamespace

import pytest
from transformers import TrainerControl, TrainerState
from transformers.integrations import WandbCallback

from rlvr_vocab.runs.stages import drop_optimizer_state
from rlvr_vocab.training.settings import UntilSettings
from rlvr_vocab.training.stage import StageContext, StopEarly, log_run_steps_to_wandb, record_wandb, recorded_wandb


def test_a_row_that_was_sent_before_a_resume_is_not_sent_again(tmp_path):
    """The second stage begins after step 40 of the run."""
    record_wandb(tmp_path, "abc", last_step=42)
    added, logged = [], []
    trainer = SimpleNamespace(pop_callback=lambda kind: WandbCallback(), add_callback=added.append)
    log_run_steps_to_wandb(trainer, StageContext(tmp_path, "long", first_step=40))
    [callback] = added
    callback._wandb, callback._initialized = SimpleNamespace(log=logged.append, run=None), True
    for step in (1, 2, 3):
        callback.on_log(None, TrainerState(global_step=step, is_world_process_zero=True), None, logs={"loss": 0.0})
    assert [row["train/global_step"] for row in logged] == [43]
    assert recorded_wandb(tmp_path) == {"id": "abc", "last_step": 43}
    for step in (2, 3):
        state = TrainerState(global_step=step, is_world_process_zero=True)
        callback.on_log(None, state, None, logs={"eval_problems": 5})
    assert logged[1:] == [{"eval/problems": 5, "train/global_step": 43}]


def test_a_figure_of_held_out_problems_ends_a_stage_by_the_name_that_it_is_logged_by():
    history = [*rows(0.1), {"eval_accuracy": 0.4}, *rows(0.1), {"eval_accuracy": 0.6}]
    until = UntilSettings("eval/accuracy", above=0.5, window=1)
    assert not until.reached(history[:3]) and until.reached(history)
    control = TrainerControl()
    state = TrainerState(log_history=history)
    StopEarly(until).on_log(None, state, control, logs={"train_loss": 0.0})
    assert not control.should_training_stop
    StopEarly(until).on_log(None, state, control, logs={"eval_accuracy": 0.6, "eval_problems": 5})
    assert control.should_training_stop


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


def test_state_and_weights_are_gone_once_nobody_needs_them(expand_shape, make_trainer, tmp_path):
    trainer = make_trainer(expand_shape("qwen3", size=None), tmp_path, max_steps=1)
    trainer.train()
    states = [weakref.ref(each["exp_avg"]) for each in trainer.optimizer.state.values()]
    weights = [weakref.ref(each) for each in trainer.model.parameters()]
    assert len(states) == len(weights)
    drop_optimizer_state(trainer)
    gc.collect()
    assert not any(each() is not None for each in states)
    del trainer
    gc.collect()
    assert not any(each() is not None for each in weights)
