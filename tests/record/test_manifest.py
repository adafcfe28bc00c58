"""The files of a model folder are compared with its manifest."""

import pytest

from rlvr_vocab.record.manifest import problem_with, write_manifest


def flip(path):
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])


@pytest.mark.parametrize("damage", [flip, lambda path: path.write_bytes(b""), lambda path: path.unlink()])
@pytest.mark.parametrize("name", ["model.safetensors", "inside/config.json", "manifest.json"])
def test_a_damaged_file_is_named_and_a_flipped_bit_costs_a_hash(name, damage, tmp_path):
    for each in ("model.safetensors", "inside/config.json", "README.md"):
        (tmp_path / each).parent.mkdir(exist_ok=True)
        (tmp_path / each).write_text(f"{each} as it was\n")
    write_manifest(tmp_path)
    (tmp_path / "README.md").write_text("edited")
    assert problem_with(tmp_path) is None
    damage(tmp_path / name)
    assert problem_with(tmp_path).startswith(f"{name} ")
    assert (problem_with(tmp_path, hashed=False) is None) == (damage is flip and name != "manifest.json")
