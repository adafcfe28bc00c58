"""What a user sees whose script uses a pool: it runs once, ends silently, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

# With Ctrl-C as a terminal has it: what a shell starts in the background ignores it, and hands that on.
BEGINNING = f"""
import signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, {str(Path(__file__).parent)!r})
from rlvr_vocab.verify.pool import WorkerPool, shared_pool
"""
HANGING = """
pool = shared_pool("pool_tasks:act", deadline=1.0)
pool.run([["leave", 1]] * 6)
pool.run([["nap", 0.1]] * 2)
print("ready", flush=True)
while True:
    pool.run([["hang"]] * 2)
"""

Script = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    """Starts a script of the given lines in a process group of its own, as a terminal does."""
    started = []

    def start(lines: str) -> subprocess.Popen[str]:
        path = tmp_path / "train.py"
        path.write_text(BEGINNING + lines, encoding="utf-8")
        command = [sys.executable, "-X", "dev", str(path)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0, cwd=tmp_path
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def processes_of_a_ready(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Template and workers of a script that has printed that it is ready."""
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    return psutil.Process(process.pid).children(recursive=True)


def those_left(processes: list[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Those that still live after so many seconds; none, and sooner, if all have ended."""
    until = time.monotonic() + seconds
    while (left := [process for process in processes if is_alive(process)]) and time.monotonic() < until:
        time.sleep(0.02)
    return left


def is_alive(process: psutil.Process) -> bool:
    # The first process of a container may be slow to bury the orphans that it inherits.
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_script_without_main_guard_runs_once_and_ends_silently(script: Script) -> None:
    process = script(
        """
pool = shared_pool("pool_tasks:act")
print([outcome.value for outcome in pool.run([["echo", 1], ["leave", 1], ["echo", 2]])])
"""
    )
    assert process.communicate(timeout=30) == ("[1, None, 2]\n", "")
    assert process.returncode == 0


@pytest.mark.parametrize("end", ["", "raise SystemExit(0)", "del pool"])
def test_a_script_that_ends_takes_its_processes_along(script: Script, end: str) -> None:
    process = script(
        f"""
pool = WorkerPool("pool_tasks:act", workers=2)
pool.run([["nap", 0.1]] * 2)
print("ready", flush=True)
time.sleep(0.4)
{end}
"""
    )
    processes = processes_of_a_ready(process)
    assert process.communicate(timeout=30) == ("", "")
    assert len(processes) == 3 and those_left(processes, 0) == []


def test_a_script_may_end_while_its_threads_wait_for_outcomes(script: Script) -> None:
    process = script(
        """
def call():
    while True:
        shared_pool("pool_tasks:act").run([["nap", 0.01]] * 10)
for _ in range(3):
    threading.Thread(target=call, daemon=True).start()
time.sleep(0.4)
"""
    )
    assert process.communicate(timeout=30) == ("", "")


def test_a_forked_child_that_ends_prints_nothing_and_leaves_the_parents_processes_alone(script: Script) -> None:
    process = script(
        """
import os
pool = shared_pool("pool_tasks:act", deadline=5.0)
before = pool.run([["pid"]])[0].value
child = os.fork()
if child == 0:
    raise SystemExit(0)
os.waitpid(child, 0)
print(pool.run([["pid"]])[0].value == before)
"""
    )
    assert process.communicate(timeout=30) == ("True\n", "")


def test_a_task_beside_the_script_is_found(script: Script, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("def double(number): return 2 * number", encoding="utf-8")
    process = script('print(WorkerPool("beside:double").run([21])[0].value)')
    assert process.communicate(timeout=30) == ("42\n", "")


def test_ctrl_c_interrupts_the_script_alone_and_no_process_stays(script: Script) -> None:
    process = script(HANGING.replace("deadline=1.0", "deadline=60.0"))
    processes = processes_of_a_ready(process)
    os.killpg(process.pid, signal.SIGINT)
    said, complained = process.communicate(timeout=10)
    assert (said, complained.splitlines()[-1]) == ("", "KeyboardInterrupt")
    assert complained.count("Traceback") == 1 and "Warning" not in complained
    assert len(processes) >= 2 and those_left(processes, 0) == []


def test_a_script_can_go_on_after_ctrl_c(script: Script) -> None:
    process = script(
        """
pool = shared_pool("pool_tasks:act", deadline=60.0)
pool.run([["nap", 0.1]] * 2)
print("ready", flush=True)
try:
    pool.run([["hang"]] * 2)
except KeyboardInterrupt:
    print(pool.run([["echo", "goes on"]])[0].value)
"""
    )
    processes_of_a_ready(process)
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=10) == ("goes on\n", "")


def test_answers_that_came_while_the_script_was_stopped_count(script: Script) -> None:
    process = script(
        """
pool = shared_pool("pool_tasks:act", deadline=0.5)
pool.run([["nap", 0.1]] * 2)
print("ready", flush=True)
print([outcome.value for outcome in pool.run([["nap", 0.4], ["nap", 0.4]])])
"""
    )
    processes_of_a_ready(process)
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.6)
    process.send_signal(signal.SIGCONT)
    assert process.communicate(timeout=10) == ("[0.4, 0.4]\n", "")


def test_processes_that_die_do_not_end_a_script_that_keeps_the_default_of_sigpipe(script: Script) -> None:
    process = script(
        """
import psutil, signal
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
def kill_the_worker(done, total):
    psutil.Process().children(recursive=True)[-1].kill()
    time.sleep(0.1)
pool = WorkerPool("pool_tasks:act", workers=1, deadline=0.3)
print(pool.run([["kill_the_template_and_hang"]])[0].failure)
print([outcome.value for outcome in pool.run([["echo", 1], ["echo", 2]], kill_the_worker)])
"""
    )
    assert process.communicate(timeout=10) == ("timeout\n[1, 2]\n", "")


def test_a_killed_script_takes_its_processes_along_in_the_middle_of_hanging_items(script: Script) -> None:
    process = script(HANGING.replace("deadline=1.0", "deadline=60.0"))
    processes = processes_of_a_ready(process)
    process.kill()
    assert len(processes) >= 2 and those_left(processes, 3) == []


def test_workers_end_by_themselves_where_script_and_template_are_killed(script: Script) -> None:
    process = script(HANGING)
    template, *workers = processes_of_a_ready(process)
    template.suspend()  # or it would end the workers
    process.kill()
    template.kill()
    assert len(workers) >= 1 and those_left(workers, 3) == []
