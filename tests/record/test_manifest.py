"""The files of a finished run are compared with its manifest."""

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.record.completions import CompletionFiles
from rlvr_vocab.record.manifest import damage_of_run, problem_in_run, write_manifest, write_run_manifest

SAMPLED = ["completions/step_00002.parquet", "evaluation/step_00002.jsonl"]
OTHERS = ["metrics.jsonl", "evaluation/after.jsonl", "stages/1_one/stage.json", "final_model/model.safetensors"]


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])


DAMAGES = [cut, flip, lambda path: path.write_bytes(b""), lambda path: path.unlink()]


@pytest.fixture
def run(tmp_path):
    for name in (*SAMPLED, *OTHERS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{name} as it was\n")
    write_manifest(tmp_path / "final_model")
    write_run_manifest(tmp_path, "{}\n")
    (tmp_path / "summary.json").write_text("{}\n")
    return tmp_path


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", [*SAMPLED, *OTHERS, "final_model/manifest.json"])
def test_a_file_of_a_finished_run_is_named_by_what_is_wrong_with_it(name, damage, run):
    damage(run / name)
    records, samples = damage_of_run(run, hashed=True)
    assert [name in line for line in (samples if name in SAMPLED else records)] == [True]
    assert (records if name in SAMPLED else samples) == []
    large = name in SAMPLED or name.endswith(".safetensors")
    assert damage_of_run(run) == (([], []) if damage is flip and large else (records, samples))


def test_a_damaged_summary_or_manifest_is_named_and_nothing_of_an_unfinished_run(run):
    assert damage_of_run(run, hashed=True) == ([], [])
    cut(run / "summary.json")
    assert [line.startswith("summary.json ") for line in damage_of_run(run)[0]] == [True]
    cut(run / "manifest.json")
    assert damage_of_run(run) == (["manifest.json is damaged"], [])
    (run / "summary.json").unlink()
    assert damage_of_run(run) == ([], [])


@pytest.mark.parametrize("damage", DAMAGES[:3])
def test_no_reader_takes_damaged_files_for_those_of_the_run(damage, run):
    for name in (SAMPLED[0], "evaluation/after.jsonl"):
        damage(run / name)
        assert problem_in_run(run, run / name).startswith(name)
    with pytest.raises(UserError, match="completions/step_00002"):
        CompletionFiles(run / "completions").table(2)
