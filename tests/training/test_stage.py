"""Steps count through the stages of a run: in rows, in names of files, and for Weights & Biases."""

from types import SimpleNamespace

from transformers import TrainerCallback, TrainerState
from transformers.integrations import WandbCallback

from rlvr_vocab.training.stage import RunPlace
from rlvr_vocab.training.wandb_steps import count_steps_of_the_run, record_wandb, recorded_wandb


class Callbacks:
    """As much of a trainer as has callbacks."""

    def __init__(self, *callbacks: TrainerCallback) -> None:
        self.callbacks = list(callbacks)

    def pop_callback(self, kind: type) -> TrainerCallback | None:
        found = next((callback for callback in self.callbacks if type(callback) is kind), None)
        self.callbacks = [callback for callback in self.callbacks if callback is not found]
        return found

    def add_callback(self, callback: TrainerCallback) -> None:
        self.callbacks.append(callback)


def test_a_stage_says_which_step_of_the_run_its_own_steps_are(tmp_path):
    place = RunPlace(tmp_path, "long", first_step=40)
    assert place.step(3) == 43
    assert place.columns(3) == {"step": 43, "stage": "long", "stage_step": 3}
    assert RunPlace(tmp_path).columns(3) == {"step": 3}


def test_weights_and_biases_sees_the_steps_of_the_run(tmp_path):
    trainer = Callbacks(WandbCallback())
    count_steps_of_the_run(trainer, RunPlace(tmp_path, "long", first_step=40))
    [callback] = trainer.callbacks
    logged = []
    callback._wandb, callback._initialized = SimpleNamespace(log=logged.append, run=None), True
    state = TrainerState(global_step=3, is_world_process_zero=True)
    callback.on_log(None, state, None, logs={"reward": 0.5})
    assert logged == [{"train/reward": 0.5, "train/global_step": 43}]
    assert state.global_step == 3


def test_without_weights_and_biases_nothing_is_added(tmp_path):
    trainer = Callbacks()
    count_steps_of_the_run(trainer, RunPlace(tmp_path, "long", first_step=40))
    assert trainer.callbacks == []


def test_a_row_that_was_sent_before_a_resume_is_not_sent_again(tmp_path):
    record_wandb(tmp_path, "abc", last_step=2)
    trainer = Callbacks(WandbCallback())
    count_steps_of_the_run(trainer, RunPlace(tmp_path))
    [callback] = trainer.callbacks
    logged = []
    callback._wandb, callback._initialized = SimpleNamespace(log=logged.append, run=None), True
    for step in (1, 2, 3):
        callback.on_log(None, TrainerState(global_step=step, is_world_process_zero=True), None, logs={"loss": 0.0})
    assert [row["train/global_step"] for row in logged] == [3]
    assert recorded_wandb(tmp_path) == {"id": "abc", "last_step": 3}
    for step in (2, 3):
        state = TrainerState(global_step=step, is_world_process_zero=True)
        callback.on_log(None, state, None, logs={"eval_accuracy": 0.5})
    assert logged[1:] == [{"eval/accuracy": 0.5, "train/global_step": 3}]
