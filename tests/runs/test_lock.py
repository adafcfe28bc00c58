"""Two starts on one folder: the second is refused with the name of the first."""

import os
import socket
import subprocess
import sys

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.runs import folder as folder_of_run
from rlvr_vocab.runs.folder import LOCK, check_not_running, only_writer
from tests.settings import load_settings

HOLDER = (
    "import sys, time, pathlib; from rlvr_vocab.runs.folder import only_writer\n"
    "with only_writer(pathlib.Path(sys.argv[1])):\n    print('inside', flush=True)\n    time.sleep(600)\n"
)


@pytest.fixture
def holder(tmp_path, monkeypatch):
    """Another process that writes the folder `run`, as a job of a scheduler."""
    folder = tmp_path / "run"
    environment = {**os.environ, "SLURM_JOB_ID": "4711"}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None and process.stdout.readline() == "inside\n"
    yield process, folder
    process.kill()
    process.wait()


def test_the_second_start_is_refused_as_its_settings_are_read_and_names_the_first(holder):
    process, folder = holder
    with pytest.raises(UserError) as refused:
        load_settings("train", ["experiment=quickstart", "exp_name=run", f"output_dir={folder}", "overwrite=true"])
    message = str(refused.value)
    assert f"process {process.pid} on {socket.gethostname()} (SLURM job 4711)" in message and str(folder) in message


def test_a_waiting_process_gets_the_holder_and_enters_once_it_is_gone(holder):
    process, folder = holder
    holders = []

    def waiting(who):
        holders.append(who)
        process.kill()

    with only_writer(folder, waiting=waiting):
        assert (folder / LOCK).read_text().startswith(f"process {os.getpid()} on {socket.gethostname()}")
    [who] = holders
    assert f"process {process.pid} on" in who


def test_a_lock_that_nobody_holds_is_cleared_with_the_folders_that_it_made(tmp_path):
    with only_writer(tmp_path / "out" / "run"):
        pass
    (tmp_path / LOCK).write_text("{")
    check_not_running(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_lock_on_a_file_that_its_last_holder_has_removed_counts_for_nothing(tmp_path, monkeypatch):
    try_to_lock, locked = folder_of_run._try_to_lock, []

    def lock(file):
        if not locked:
            (tmp_path / LOCK).unlink()
        locked.append(file)
        return try_to_lock(file)

    monkeypatch.setattr(folder_of_run, "_try_to_lock", lock)
    with only_writer(tmp_path):
        assert len(locked) == 2 and os.fstat(locked[1].fileno()).st_ino == (tmp_path / LOCK).stat().st_ino
