"""Which checkpoints are valid: the whole ones."""

import pytest

from rlvr_vocab.record.manifest import is_complete, write_manifest
from rlvr_vocab.training.checkpointing.find import newest_checkpoint


def make_checkpoint(parent, step):
    folder = parent / f"checkpoint-{step}"
    (folder / "part").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(bytes(range(100)))
    (folder / "part" / "state.json").write_text("{}")
    write_manifest(folder)
    return folder


def flip_a_byte(folder):
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[50] ^= 1
    (folder / "model.safetensors").write_bytes(content)


DAMAGE = {
    "flipped byte": flip_a_byte,
    "truncated": lambda folder: (folder / "model.safetensors").write_bytes(bytes(range(99))),
    "longer": lambda folder: (folder / "model.safetensors").write_bytes(bytes(range(101))),
    "missing file": lambda folder: (folder / "part" / "state.json").unlink(),
    "missing manifest": lambda folder: (folder / "manifest.json").unlink(),
    "cut manifest": lambda folder: (folder / "manifest.json").write_text('{"files": {'),
    "empty manifest": lambda folder: (folder / "manifest.json").write_text(""),
    "foreign manifest": lambda folder: (folder / "manifest.json").write_text("[]"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_not_valid(damage, tmp_path):
    folder = make_checkpoint(tmp_path, 1)
    DAMAGE[damage](folder)
    assert not is_complete(folder)


def test_the_newest_whole_checkpoint_is_found_by_its_number(tmp_path):
    for step in (9, 10, 100):
        make_checkpoint(tmp_path, step)
    (tmp_path / "checkpoint-200").mkdir()
    (tmp_path / "checkpoint-last").mkdir()
    make_checkpoint(tmp_path, 300).rename(tmp_path / "old-checkpoint-300")
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-100"
    flip_a_byte(tmp_path / "checkpoint-100")
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-10"


def test_without_a_whole_checkpoint_there_is_none(tmp_path):
    assert newest_checkpoint(tmp_path) is None
    assert newest_checkpoint(tmp_path / "missing") is None
    flip_a_byte(make_checkpoint(tmp_path, 3))
    assert newest_checkpoint(tmp_path) is None
