"""A disk that fills up: a clean end with the last checkpoint intact, or no checkpoint and no end."""

import os
import subprocess

import pytest

from rlvr_vocab.record.manifest import problem_with
from rlvr_vocab.training.checkpoint_folders import steps_in

OUT_OF_ROOM = 74
MEGABYTE = 2**20


@pytest.fixture
def small_disk(tmp_path):
    """A file system in memory, of a size that can be changed."""
    place = tmp_path / "disk"
    place.mkdir()

    def sized(megabytes):
        option = "remount,size" if os.path.ismount(place) else "size"
        words = ["mount", "-t", "tmpfs", "-o", f"{option}={megabytes}m", "tmpfs", str(place)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
        return place

    yield sized
    if os.path.ismount(place):
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def room_of(undisturbed, checkpoints):
    """Megabytes for what a run writes at first, and so many checkpoints."""
    one = sum(path.stat().st_size for path in (undisturbed / "checkpoint-6").iterdir())
    first = sum(path.stat().st_size for path in (undisturbed / "initial_model").iterdir())
    return int((first + checkpoints * one) / MEGABYTE) + 1


def test_a_disk_too_small_for_the_next_checkpoint_ends_the_run_and_more_room_lets_it_go_on(
    forks, undisturbed, small_disk, outcome_of
):
    whole = undisturbed("training.save_total_limit=null")
    folder = small_disk(room_of(whole, 2.5)) / "run"
    words = "training.save_total_limit=null"
    assert forks.run(folder, words) == OUT_OF_ROOM
    last = forks.said(folder).splitlines()[-1]
    assert "has no room for checkpoint-3" in last and "checkpoint-2 is intact" in last
    assert sorted(steps_in(folder)) == [1, 2] and not any(map(problem_with, steps_in(folder).values()))
    assert not (folder / ".saving").exists()
    small_disk(room_of(whole, 12))
    assert forks.run(folder, words) == 0
    assert outcome_of(folder) == outcome_of(whole)


# One file each that safetensors, torch and Python write.
FILLED = {
    "model.safetensors": ("open .saving/checkpoint-3/generation_config.json", 200_000),
    "optimizer.pt": ("before torch.save .saving/checkpoint-3/optimizer.pt", 200_000),
    "manifest.json": ("open .saving/checkpoint-3/manifest.json", 0),
}


@pytest.mark.parametrize("file", FILLED)
def test_a_disk_that_fills_up_while_a_file_is_written(file, forks, undisturbed, small_disk, outcome_of):
    """Somebody else takes the room once the save has begun: it is not seen beforehand."""
    disk, (at, leave) = small_disk(200), FILLED[file]
    folder, filler = disk / "run", disk / "filler"
    assert forks.run(folder, fill={"at": at, "file": str(filler), "leave": leave}) == OUT_OF_ROOM
    last = forks.said(folder).splitlines()[-1]
    assert "has no room for checkpoint-3" in last and "checkpoint-2 is intact" in last
    assert sorted(steps_in(folder)) == [1, 2] and not any(map(problem_with, steps_in(folder).values()))
    filler.unlink()
    assert forks.run(folder) == 0
    assert outcome_of(folder) == outcome_of(undisturbed())


def test_a_disk_that_is_full_from_the_start(forks, small_disk):
    disk = small_disk(1)
    (disk / "filler").write_bytes(bytes(MEGABYTE - 16384))
    assert forks.run(disk / "run") == OUT_OF_ROOM
    assert "is full" in forks.said(disk / "run")
