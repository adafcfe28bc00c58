"""Every file of the newest checkpoint cut short, emptied, deleted or changed by a bit: noticed, named, passed over."""

import shutil

import pytest

from rlvr_vocab.record.manifest import problem_with
from rlvr_vocab.training.checkpointing.find import newest_checkpoint


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {"cut": cut, "empty": lambda path: path.write_bytes(b""), "delete": lambda path: path.unlink(), "flip": flip}


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


def test_the_run_goes_on_from_the_checkpoint_before(forks, unfinished, undisturbed, outcome_of):
    flip(unfinished / "checkpoint-6" / "scheduler.pt")
    assert forks.run(unfinished) == 0
    said = forks.said(unfinished)
    assert "scheduler.pt is not what was written" in said and "set aside as broken-checkpoint-6" in said
    assert f"going on from {unfinished / 'checkpoint-5'}" in said
    assert outcome_of(unfinished) == outcome_of(undisturbed())


@pytest.mark.parametrize("lost", ["the end of the last stage", "the end of the stage before"])
def test_a_stage_that_had_ended_is_taken_up_where_its_end_is_lost(lost, forks, undisturbed, outcome_of, tmp_path):
    length = "{name:length,params:{longest:1,falloff:300,unit:characters}}"
    stages = ",".join(f"{{name:{name},rewards:[{length}],training:{{max_steps:3}}}}" for name in ("one", "two"))
    words = f"stages=[{stages}]"
    folder = tmp_path / "run"
    shutil.copytree(undisturbed(words), folder)
    for name in ("summary.json", "manifest.json"):
        (folder / name).unlink()
    (folder / "evaluation" / "after.jsonl").unlink()
    if lost == "the end of the last stage":
        flip(folder / "stages" / "2_two" / "checkpoint-3" / "model.safetensors")
    else:  # and the next one had no checkpoint yet
        flip(folder / "stages" / "1_one" / "checkpoint-3" / "model.safetensors")
        shutil.rmtree(folder / "stages" / "2_two")
    assert forks.run(folder, words) == 0, forks.said(folder)
    assert "had ended, but its last checkpoint is not whole" in forks.said(folder)
    assert outcome_of(folder) == outcome_of(undisturbed(words))


def test_a_model_before_training_that_was_changed_is_written_again(forks, unfinished, undisturbed, outcome_of):
    """The reference that a run goes on with is the one that it began with."""
    flip(unfinished / "initial_model" / "model.safetensors")
    assert forks.run(unfinished) == 0
    assert "model.safetensors is not what was written" in forks.said(unfinished)
    written = [folder / "initial_model" / "model.safetensors" for folder in (unfinished, undisturbed())]
    assert written[0].read_bytes() == written[1].read_bytes()
    assert (unfinished / "broken-initial_model").is_dir()
    assert outcome_of(unfinished) == outcome_of(undisturbed())
