"""What a run has written down is compared with the lists of its checkpoints and of its end."""

import json
import shutil

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.record.completions import CompletionFiles
from rlvr_vocab.record.files import read_record
from rlvr_vocab.record.inventory import RunInventory, write_final_inventory, write_inventory
from rlvr_vocab.record.manifest import write_manifest

SMALL = ["metrics.jsonl", "evaluation/before.jsonl", "stages/1_one/stage.json"]
SAMPLED = ["completions/step_00001.parquet", "completions/step_00002.parquet", "evaluation/step_00002.jsonl"]
OF_THE_END = ["evaluation/after.jsonl", "problems.json", "environment.json", "final_model/model.safetensors"]


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])


DAMAGES = [cut, flip, lambda path: path.write_bytes(b""), lambda path: path.unlink()]


def write(folder, name, text):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


@pytest.fixture
def run(tmp_path):
    """A run with a checkpoint at step 2, and a row that it has logged since."""
    for name in (*SMALL, *SAMPLED):
        write(tmp_path, name, f"{name} as it was\n")
    write_inventory(tmp_path, tmp_path / "checkpoint-2", {})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write("a later row\n")
    return tmp_path


@pytest.fixture
def finished(run):
    for name in OF_THE_END:
        write(run, name, f"{name} as it was\n")
    write_manifest(run / "final_model")
    write(run, "metrics.jsonl", "metrics.jsonl as it was\n")
    write_final_inventory(run, "{}\n")
    write(run, "summary.json", "{}\n")
    return run


def test_nothing_is_said_of_a_run_that_is_as_it_was_written(run):
    assert RunInventory.of(run).damage() == [] and RunInventory.of(run).restore() == ([], [])


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", SMALL)
def test_a_small_file_is_put_back_as_the_checkpoint_had_it(name, damage, run):
    damage(run / name)
    assert [line.startswith(name) for line in RunInventory.of(run).damage()] == [True]
    [line], made_anew = RunInventory.of(run).restore()
    assert name in line and "put back" in line and made_anew == []
    assert (run / name).read_text() == f"{name} as it was\n"


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", SAMPLED)
def test_a_sampled_file_stays_lost_in_every_later_list(name, damage, run):
    damage(run / name)
    [line], made_anew = RunInventory.of(run).restore()
    assert line.startswith(f"lost: {name}") and made_anew == []
    earlier = RunInventory.of(run).entries
    write_inventory(run, run / "checkpoint-10", earlier)  # the newest, though not by its letters
    shutil.rmtree(run / "checkpoint-2")
    assert RunInventory.of(run).lost() == [name]
    assert [line.startswith(f"{name} is missing") for line in RunInventory.of(run).damage()] == [True]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", [*OF_THE_END, "summary.json", "final_model/manifest.json"])
def test_what_a_finished_run_consists_of_is_named(name, damage, finished):
    damage(finished / name)
    thorough = name.endswith(".safetensors")  # a reader compares no checksum of weights
    said = RunInventory.of(finished).damage()
    assert any(name in line for line in said) or (thorough and damage is flip)
    lines, made_anew = RunInventory.of(finished).restore()
    assert [name in line for line in lines] == [True]
    assert made_anew == ["final_model/manifest.json" if name.startswith("final_model") else name]


def test_rows_after_the_end_are_no_rows_of_a_finished_run(finished):
    with (finished / "metrics.jsonl").open("a") as file:
        file.write("a row of nobody\n")
    assert RunInventory.of(finished).restore()[0][0].startswith("metrics.jsonl")
    assert (finished / "metrics.jsonl").read_text() == "metrics.jsonl as it was\n"


def test_completions_alone_are_listed_too(tmp_path):
    """A trainer that is used from Python writes no metrics."""
    write(tmp_path, SAMPLED[0], "rows")
    (tmp_path / "checkpoint-1").mkdir()
    assert list(write_inventory(tmp_path, tmp_path / "checkpoint-1", {})) == [SAMPLED[0]]
    assert RunInventory.of(tmp_path).restore() == ([], [])


def test_a_damaged_list_is_named_and_the_one_before_it_counts(run):
    write_inventory(run, run / "checkpoint-3", RunInventory.of(run).entries)
    cut(run / "checkpoint-3" / "records" / "list.json")
    records = RunInventory.of(run)
    assert records.damaged == ("checkpoint-3/records/list.json is damaged",)
    assert records.copies == run / "checkpoint-2" / "records"


def test_of_a_deleted_folder_the_first_files_and_the_last_are_named(run):
    for step in range(3, 10):
        write(run, f"completions/step_{step:05d}.parquet", "rows")
    write_inventory(run, run / "checkpoint-9", RunInventory.of(run).entries)
    shutil.rmtree(run / "completions")
    [line] = RunInventory.of(run).damage()
    assert all(f"step_0000{step}.parquet" in line for step in (1, 2, 3, 9)) and "6 more" in line


@pytest.mark.parametrize("damage", DAMAGES)
def test_no_reader_takes_completions_for_those_of_the_run_that_are_not(damage, run):
    damage(run / SAMPLED[1])
    files = CompletionFiles(run / "completions")
    assert files.steps == [1, 2]
    with pytest.raises(UserError, match="completions/step_00002"):
        files.table(2)


def test_a_summary_that_was_listed_misses_its_list(run):
    write(run, "summary.json", '{"listed_in": "manifest.json"}')
    assert "manifest.json, which lists what the run consists of, is missing" in RunInventory.of(run).damage()


def test_a_wrong_type_in_a_file_of_a_run_is_named(tmp_path):
    for content, key in (({"steps": "six"}, "steps"), ({"findings": [{"title": 3}]}, "findings"), ({"sample": []}, "")):
        (tmp_path / "summary.json").write_text(json.dumps(content))
        with pytest.raises(UserError, match=rf"summary\.json is damaged: {key}"):
            read_record(tmp_path, "summary.json")
