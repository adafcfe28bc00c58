"""Two starts on one folder: the second is refused with the name of the first."""

import os
import socket
import subprocess
import sys

import pytest

from rlvr_vocab.errors import UserError
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


def test_whoever_waits_for_the_lock_while_it_is_removed_gets_the_new_one(tmp_path):
    """Many processes at once, each inside for a moment: never two of them."""
    program = (
        "import sys, pathlib, time; from rlvr_vocab.errors import UserError\n"
        "from rlvr_vocab.runs.folder import only_writer\n"
        "folder, end, entered = pathlib.Path(sys.argv[1]), time.monotonic() + 0.7, 0\n"
        "while time.monotonic() < end:\n"
        "    try:\n"
        "        with only_writer(folder):\n"
        "            (folder / 'inside').touch(exist_ok=False)\n"
        "            entered += 1\n"
        "            (folder / 'inside').unlink()\n"
        "    except UserError:\n"
        "        pass\n"
        "print(entered)\n"
    )
    (tmp_path / "run").mkdir()
    started = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    entered = [int(process.communicate()[0]) for process in started]
    assert [process.returncode for process in started] == [0] * 3
    assert sum(entered) > 20
