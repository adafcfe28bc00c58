"""The records and models of a finished run are compared with its manifest."""

import pytest

from rlvr_vocab.record.manifest import damage_of_run, write_manifest, write_run_manifest

NAMES = ["metrics.jsonl", "evaluation/after.jsonl", "stages/1_one/stage.json", "final_model/model.safetensors"]


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])


@pytest.fixture
def run(tmp_path):
    for name in NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{name} as it was\n")
    write_manifest(tmp_path / "final_model")
    write_run_manifest(tmp_path, "{}\n")
    (tmp_path / "summary.json").write_text("{}\n")
    return tmp_path


@pytest.mark.parametrize("damage", [cut, flip, lambda path: path.write_bytes(b""), lambda path: path.unlink()])
@pytest.mark.parametrize("name", [*NAMES, "final_model/manifest.json"])
def test_a_file_of_a_finished_run_is_named_by_what_is_wrong_with_it(name, damage, run):
    damage(run / name)
    [line] = damage_of_run(run, hashed=True)
    assert line.startswith(f"{name} ")
    assert damage_of_run(run) == (() if damage is flip and name.endswith(".safetensors") else (line,))


def test_a_damaged_summary_or_manifest_is_named_and_nothing_of_an_unfinished_run(run):
    assert damage_of_run(run, hashed=True) == ()
    cut(run / "summary.json")
    [line] = damage_of_run(run)
    assert line.startswith("summary.json ")
    cut(run / "manifest.json")
    assert damage_of_run(run) == ("manifest.json is damaged",)
    (run / "summary.json").unlink()
    assert damage_of_run(run) == ()
