"""Records of a run that are cut, deleted or changed by a bit: each is named or made anew."""

import json
import os
import shutil
from pathlib import Path

import pytest

# What nobody needs again, people edit, or `report` writes again.


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {"cut": cut, "empty": lambda path: path.write_bytes(b""), "delete": lambda path: path.unlink(), "flip": flip}


def copied(folder, to):
    """Weights are linked: whoever changes them writes new files."""
    to.parent.mkdir(exist_ok=True)
    shutil.copytree(folder, to, copy_function=lambda here, there: link(Path(here), Path(there)))


def link(here, there):
    if here.stat().st_size > 2**20:
        os.link(here, there)
    else:
        shutil.copy2(here, there)


def test_an_interrupted_run_has_its_rows_from_the_checkpoint_and_names_what_it_measures_again(
    forks, unfinished, undisturbed, outcome_of
):
    cut(unfinished / "metrics.jsonl")
    before = unfinished / "evaluation" / "before.jsonl"
    cut(before)
    assert forks.run(unfinished) == 0, forks.said(unfinished)
    assert "before.jsonl, line" in forks.said(unfinished) and (before.parent / "broken-before.jsonl").is_file()
    assert outcome_of(unfinished) == outcome_of(undisturbed())
    assert before.read_bytes() == (undisturbed() / "evaluation" / "before.jsonl").read_bytes()


DAMAGED = {
    "final_model/model.safetensors": "flip",
    "summary.json": "cut",
    "evaluation/after.jsonl": "flip",
    "environment.json": "delete",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_finished_run_with_a_damaged_file_is_refused_by_its_name_and_made_anew_once_that_is_gone(
    name, forks, undisturbed, outcome_of, tmp_path
):
    folder, before = tmp_path / "run", json.loads((undisturbed() / "summary.json").read_text())
    copied(undisturbed(), folder)
    content = (folder / name).read_bytes()
    (folder / name).unlink()  # it may be linked
    (folder / name).write_bytes(content)
    DAMAGES[DAMAGED[name]](folder / name)
    assert forks.run(folder) == 2
    [line] = [line for line in forks.said(folder).splitlines() if line.startswith("error: ")]
    assert f"this run is finished, and {name} " in line
    for path in (folder / name, folder / "summary.json"):
        path.unlink(missing_ok=True)
    assert forks.run(folder) == 0, forks.said(folder)
    assert outcome_of(folder) == outcome_of(undisturbed())
    after = json.loads((folder / "summary.json").read_text())
    measured = {"grpo_seconds", "seconds", "peak_memory", "forecast"}  # of each start
    assert {**after, **dict.fromkeys(measured)} == {**before, **dict.fromkeys(measured)}
    assert after["seconds"] >= after["grpo_seconds"] > 0.5 * before["grpo_seconds"]  # though this start trained nothing


def test_samples_that_a_finished_run_has_lost_are_named_and_end_nothing(forks, undisturbed, tmp_path):
    folder = tmp_path / "run"
    copied(undisturbed(), folder)
    (folder / "completions" / "step_00002.parquet").unlink()
    assert forks.run(folder) == 0
    assert f"warning: {folder}: completions/step_00002.parquet is missing" in forks.said(folder)
