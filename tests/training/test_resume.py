"""Checkpoints appear whole, old ones go, and a trainer that is resumed holds what it held."""

import errno
import logging
import shutil
from itertools import chain
from types import SimpleNamespace

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import TrainerCallback

from rlvr_vocab.errors import OutOfRoom, UserError
from rlvr_vocab.record import manifest
from rlvr_vocab.record.manifest import problem_with
from rlvr_vocab.training import checkpoint_folders
from rlvr_vocab.training.checkpoint_folders import is_full, save_whole, steps_in

EVERY_STEP = {"save_strategy": "steps", "save_steps": 1, "max_steps": 4}


@pytest.fixture
def made(expand_shape, make_trainer, tmp_path):
    """A trainer that saves every step, on a folder of its own unless one is given."""

    def make(folder=None, out=tmp_path, **more):
        return make_trainer(folder or expand_shape("llama", size=None), out, **{**EVERY_STEP, **more})

    return make


def write_a_file(folder):
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(b"1234")


def test_old_ones_are_deleted_after_the_new_one_counts_and_the_best_stays(tmp_path):
    there = []

    def write(folder):
        write_a_file(folder)
        there.append(sorted(steps_in(tmp_path)))

    for step in (1, 2, 3, 4):
        assert save_whole(tmp_path, step, write, publishes=True, keep=2, best=1) is None
    assert there == [[], [1], [1, 2], [1, 2, 3]]  # it has its name only when it is whole
    assert not any(map(problem_with, steps_in(tmp_path).values()))
    assert sorted(steps_in(tmp_path)) == [1, 3, 4]


def test_nothing_is_written_where_less_is_free_than_the_newest_takes_and_no_file_of_it_is_read(tmp_path, monkeypatch):
    for step in (1, 2):
        assert save_whole(tmp_path, step, write_a_file, publishes=True) is None
    (tmp_path / "checkpoint-2" / "weights").write_bytes(b"123")
    monkeypatch.setattr(manifest, "_sha256", pytest.fail)
    monkeypatch.setattr(checkpoint_folders.shutil, "disk_usage", lambda path: SimpleNamespace(free=100))
    message = save_whole(tmp_path, 3, pytest.fail, publishes=True)
    assert message == f"the disk of {tmp_path} has no room for checkpoint-3; checkpoint-1 is intact"


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True),
        (OSError(errno.EACCES, "Permission denied"), False),
        (SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"), True),
        (RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534"), True),
        (RuntimeError("CUDA error: device-side assert triggered"), False),
    ],
)
def test_a_full_disk_is_told_from_other_errors(error, full, tmp_path):
    def write(folder):
        raise error

    assert is_full(error) == full
    if full:
        assert "checkpoint-1; there is no earlier one" in save_whole(tmp_path, 1, write, publishes=True)
        assert list(tmp_path.iterdir()) == []
    else:
        with pytest.raises(type(error)):
            save_whole(tmp_path, 1, write, publishes=True)


@pytest.mark.parametrize("on_full_disk", ["go_on", "stop"])
def test_a_trainer_without_room_stops_or_goes_on_as_it_is_told(on_full_disk, made, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(checkpoint_folders, "_less_is_free_than_the_newest_takes", lambda folder: True)
    trainer = made(on_full_disk=on_full_disk)
    if on_full_disk == "go_on":
        with caplog.at_level(logging.WARNING):
            trainer.train()
        assert trainer.state.global_step == 4 and caplog.text.count("goes on without it") == 4
    else:
        with pytest.raises(OutOfRoom, match="no room for checkpoint-1"):
            trainer.train()
    assert steps_in(tmp_path) == {}


class BestIsTheSecond(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        state.best_global_step = min(state.global_step, 2)


class HeldOut(TrainerCallback):
    """Logs the accuracy of held-out problems: the best at steps 2 and 3."""

    def on_step_end(self, args, state, control, **_):
        state.log_history.append(
            {"step": state.global_step, "eval_accuracy": [0.1, 0.7, 0.7, 0.2][state.global_step - 1]}
        )


@pytest.mark.slow
def test_the_checkpoint_that_answers_held_out_problems_best_stays(made, tmp_path):
    made(callbacks=[HeldOut()], save_total_limit=1).train()
    assert sorted(steps_in(tmp_path)) == [2, 4]


def test_the_best_checkpoint_is_remembered_by_the_name_it_keeps(made, tmp_path):
    """Transformers looks for it where the present one is being written."""
    trainer = made(callbacks=[BestIsTheSecond()], save_total_limit=1)
    trainer.train()
    assert sorted(steps_in(tmp_path)) == [2]  # Transformers keeps the best alone where one is to be kept
    assert trainer.state.best_model_checkpoint == str(tmp_path / "checkpoint-2")


def test_a_checkpoint_of_weights_alone_of_other_processes_or_of_another_model_is_named(made, tmp_path, caplog):
    trainer = made()
    trainer.train()
    assert not list(tmp_path.rglob("training_args.bin"))  # a pickle
    folder = tmp_path / "checkpoint-2"
    shutil.copy(folder / "pending_0.pt", folder / "pending_1.pt")
    trainer.checkpoints.require_resumable(folder)
    assert "written by 2 processes, resumed by 1: random numbers differ" in caplog.text
    for each in folder.glob("pending_*"):
        each.unlink()
    with pytest.raises(UserError, match=r"cannot resume from it: pending_0.pt is missing"):
        made().train(resume_from_checkpoint=str(folder))
    manifest.write_manifest(folder)
    with pytest.raises(UserError, match="no state of a training"):
        made().train(resume_from_checkpoint=str(folder))
    other = shutil.copytree(trainer.initial_model, tmp_path / "other")
    weights = load_file(other / "model.safetensors")
    save_file({name: tensor + 1e-3 for name, tensor in weights.items()}, other / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=r"other has other weights than the model that .*checkpoint-4 was trained on"):
        made(other).train(resume_from_checkpoint=True)


@pytest.mark.slow
def test_problems_go_on_in_the_order_of_the_epoch_that_a_resume_is_in(made, tmp_path):
    """Three steps are an epoch: TRL's sampler would begin each resume with the order of the first."""

    def problems_of(checkpoint=None):
        trainer, seen = made(max_steps=6, per_device_train_batch_size=16), []
        generate = trainer.generate_and_score

        def generate_and_score(inputs, *more):
            seen.append([row["solution"] for row in inputs])
            return generate(inputs, *more)

        trainer.generate_and_score = generate_and_score
        trainer.train(resume_from_checkpoint=checkpoint)
        return seen

    whole = problems_of()
    assert whole[:3] != whole[3:] and sorted(chain(*whole[:3])) == sorted(chain(*whole[3:]))
    assert problems_of(str(tmp_path / "checkpoint-5")) == whole[5:]


def test_failures_and_unlogged_figures_are_taken_up_where_they_were(made, tmp_path):
    def trainer_with(failures):
        trainer = made(steps_per_generation=4, logging_steps=3)
        trainer.reward_funcs[0].failures, trainer.reward_funcs[0].name = failures, "accuracy"
        return trainer

    trainer_with(failures=7).train()
    resumed = trainer_with(failures=0)

    class Begun(TrainerCallback):
        def on_step_begin(self, args, state, control, **_):
            assert state.global_step == 2 and resumed.reward_funcs[0].failures == 7
            assert resumed._step == 2 and torch.is_tensor(resumed._tr_loss)
            control.should_training_stop = True

    resumed.add_callback(Begun())
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert resumed.checkpoints.seconds_before > 0
