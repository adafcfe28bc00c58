"""Files that are cut, deleted or changed by a bit: each is named, passed over or made anew."""

import json
import shutil

import pytest

from rlvr_vocab.record.manifest import problem_with
from rlvr_vocab.training.checkpoint_folders import newest_checkpoint


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {"cut": cut, "delete": lambda path: path.unlink(), "flip": flip}


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_file_of_the_newest_checkpoint(damage, unfinished):
    newest = unfinished / "checkpoint-6"
    names = sorted(str(path.relative_to(newest)) for path in newest.rglob("*") if path.is_file())
    assert {"model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "pending_0.pt"} < set(names)
    for name in names:
        kept = (newest / name).read_bytes()
        DAMAGES[damage](newest / name)
        problem = problem_with(newest)
        assert problem is not None and name in problem
        assert newest_checkpoint(unfinished) == unfinished / "checkpoint-5"
        (newest / name).write_bytes(kept)
    assert problem_with(newest) is None


def test_a_run_goes_on_from_what_is_whole(forks, unfinished, undisturbed, outcome_of):
    flip(unfinished / "checkpoint-6" / "scheduler.pt")
    cut(unfinished / "metrics.jsonl")  # whose rows are in the checkpoint
    assert forks.run(unfinished) == 0, forks.said(unfinished)
    assert "set aside as broken-checkpoint-6" in forks.said(unfinished)
    assert (unfinished / "broken-checkpoint-6").exists()
    assert outcome_of(unfinished) == outcome_of(undisturbed())


@pytest.mark.parametrize("file", ["initial_model/model.safetensors", "evaluation/before.jsonl"])
def test_a_damaged_record_of_an_unfinished_run_is_named_and_made_again_once_it_is_gone(
    file, forks, unfinished, undisturbed, outcome_of
):
    cut(unfinished / file)
    assert forks.run(unfinished) == 2
    [line] = [line for line in forks.said(unfinished).splitlines() if line.startswith("error: ")]
    assert file.partition("/")[0] in line
    (unfinished / file).unlink()
    if file.startswith("initial_model"):
        shutil.rmtree(unfinished / "initial_model")
    assert forks.run(unfinished) == 0, forks.said(unfinished)
    assert (unfinished / file).read_bytes() == (undisturbed() / file).read_bytes()
    assert outcome_of(unfinished) == outcome_of(undisturbed())


@pytest.mark.parametrize(
    ("name", "damage"), [("final_model/model.safetensors", "flip"), ("final_model/config.json", "delete")]
)
def test_a_finished_run_with_a_damaged_file_is_refused_by_its_name_and_made_anew_once_that_is_gone(
    name, damage, forks, undisturbed, outcome_of, tmp_path
):
    folder, before = tmp_path / "run", json.loads((undisturbed() / "summary.json").read_text())
    shutil.copytree(undisturbed(), folder)
    DAMAGES[damage](folder / name)
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
