"""Which checkpoints are valid: the whole ones."""

import pickle

import pytest
import torch
from safetensors.torch import save_file
from transformers import TrainerState

from rlvr_vocab.record.manifest import write_manifest
from rlvr_vocab.training.checkpoint_folders import checkpoint_for_all, newest_checkpoint
from tests.vocab.test_weights import Malicious


def make_checkpoint(parent, step):
    folder = parent / f"checkpoint-{step}"
    (folder / "part").mkdir(parents=True)
    save_file({"weight": torch.ones(9)}, folder / "model.safetensors")
    torch.save({"state": torch.ones(9)}, folder / "optimizer.pt")
    TrainerState().save_to_json(str(folder / "trainer_state.json"))
    (folder / "part" / "state.json").write_text("{}")
    write_manifest(folder)
    return folder


def cut(path):
    path.write_bytes(path.read_bytes()[:-3])


UNREADABLE = {
    "a pickle": lambda folder: (folder / "optimizer.pt").write_bytes(pickle.dumps(Malicious(folder.parent / "mark"))),
    "an object": lambda folder: torch.save(Malicious(folder.parent / "mark"), folder / "optimizer.pt"),
    "a pickled state of random numbers": lambda folder: (folder / "rng_state.pth").write_bytes(b"\x80\x04."),
    "no torch file": lambda folder: (folder / "scheduler.pt").write_text("nothing"),
    "cut weights": lambda folder: cut(folder / "model.safetensors"),
    "weights that are none": lambda folder: (folder / "model.safetensors").write_bytes(bytes(range(100))),
    "weights without places": lambda folder: (folder / "model.safetensors").write_bytes(
        b"\x08" + bytes(7) + b'{"a":{}}'
    ),
    "a state that is no JSON": lambda folder: (folder / "trainer_state.json").write_text("{"),
    "a state of another form": lambda folder: (folder / "trainer_state.json").write_text('{"no_such_field": 1}'),
}


@pytest.mark.parametrize("content", UNREADABLE)
def test_content_that_is_not_plain_data_is_set_aside_and_never_run_though_the_manifest_lists_it(content, tmp_path):
    make_checkpoint(tmp_path, 1)
    folder = make_checkpoint(tmp_path, 2)
    UNREADABLE[content](folder)
    write_manifest(folder)
    assert checkpoint_for_all(tmp_path, resume=True) == tmp_path / "checkpoint-1"
    assert (tmp_path / "broken-checkpoint-2").is_dir() and not (tmp_path / "mark").exists()


def test_the_newest_whole_checkpoint_is_found_by_its_number(tmp_path):
    for step in (9, 10, 100):
        make_checkpoint(tmp_path, step)
    (tmp_path / "checkpoint-200").mkdir()
    (tmp_path / "checkpoint-last").mkdir()
    make_checkpoint(tmp_path, 300).rename(tmp_path / "old-checkpoint-300")
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-100"
    weights = tmp_path / "checkpoint-100" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[50] ^= 1
    weights.write_bytes(content)
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-10"
    assert newest_checkpoint(tmp_path / "missing") is None
