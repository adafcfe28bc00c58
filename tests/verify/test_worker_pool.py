"""Who may call a pool, which of its processes are replaced, and that none is left over."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlvr_vocab.verify import worker_pool

from .conftest import MakePool, Pool, Processes, echoes


def test_processes_start_when_they_are_needed_and_stay(make_pool: MakePool, processes: Processes) -> None:
    pool = make_pool(workers=3)
    assert pool.run([]) == [] and processes() == []
    for items, workers in [(1, 1), (2, 2), (5, 3)]:
        pool.values(*[["nap", 0.05]] * items)
        assert len(processes()) == workers
    kept = processes()
    for _ in range(20):
        pool.values(*echoes(1, 2, 3))
    assert processes() == kept


def test_a_pool_that_nobody_holds_ends_its_processes(make_pool: MakePool, processes: Processes) -> None:
    assert Pool("pool_tasks:act").values(["echo", 1]) == [1]
    assert processes() == []


def test_threads_that_call_at_once_get_their_own_answers(make_pool: MakePool) -> None:
    pool, answers = make_pool(workers=2, deadline=0.3), {}

    def call(name: int) -> None:
        answers[name] = pool.values(*echoes(*range(1000 * name, 1000 * name + 300)), ["hang"])

    threads = [threading.Thread(target=call, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert answers == {name: [*range(1000 * name, 1000 * name + 300), None] for name in range(4)}


def test_a_pool_works_inside_a_running_event_loop(make_pool: MakePool) -> None:
    pool = make_pool(workers=2)

    async def main() -> list[Any]:
        aside = await asyncio.gather(*(asyncio.to_thread(pool.values, ["echo", number]) for number in range(4)))
        return [*pool.values(["echo", 9]), *(value for [value] in aside)]

    assert asyncio.run(main()) == [9, 0, 1, 2, 3]


def test_after_a_fork_child_and_parent_have_processes_of_their_own(make_pool: MakePool) -> None:
    pool = make_pool(workers=1)
    [parents] = pool.values(["pid"])
    files = psutil.Process().num_fds()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        open_files = psutil.Process().num_fds()
        os.write(writing, repr([*pool.values(["echo", "from the child"], ["pid"]), open_files]).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer, childs, open_files = eval(pipe.read())
    os.waitpid(child, 0)
    assert answer == "from the child" and childs != parents
    assert open_files <= files + 2 - 1  # the pipe, and without the connections of the parent
    assert pool.values(["pid"]) == [parents]


def test_the_callers_own_alarm_still_rings(make_pool: MakePool) -> None:
    rung: list[int] = []
    pool = make_pool(workers=2)
    pool.run([["echo"]])
    previous = signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        outcomes = pool.run([["hang"], ["nap", 0.1], ["nap", 0.1]], deadline=0.5)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert rung == [signal.SIGALRM]
    assert [outcome.failure for outcome in outcomes] == ["timeout", None, None]


@pytest.mark.parametrize("moment", [0.0, 0.01, 0.3])
def test_an_interrupted_batch_leaves_the_pool_in_step(make_pool: MakePool, processes: Processes, moment: float) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    pool = make_pool(workers=2, deadline=10)
    if moment:
        pool.values(*[["nap", 0.01]] * 2)
    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, moment or 0.02)  # 0.02 s: in the middle of the start
        with pytest.raises(KeyboardInterrupt):
            pool.run([*echoes(*range(100)), ["nap", 0.4], ["nap", 5], *echoes(*range(100))])
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert pool.values(*echoes(*range(1000, 1010))) == list(range(1000, 1010))
    # A worker that was interrupted at its birth ends once it has imported its task.
    assert len(those_left(processes(), 5, but=2)) <= 2


def test_processes_killed_between_two_batches_are_replaced(make_pool: MakePool, processes: Processes) -> None:
    pool = make_pool(workers=2)
    for victims in (slice(0, 1), slice(None)):
        assert pool.values(*[["nap", 0.05]] * 2) == [0.05] * 2
        for process in processes()[victims]:
            process.kill()
        time.sleep(0.05)
        assert pool.values(*echoes(*range(20))) == list(range(20))
    assert all(process.status() != psutil.STATUS_ZOMBIE for process in processes())


def test_a_stopped_worker_is_replaced(make_pool: MakePool, processes: Processes) -> None:
    pool = make_pool(workers=1, deadline=0.3)
    pool.values(["echo", 1])
    [stopped] = processes()
    stopped.suspend()
    assert pool.values(["echo", 1], ["echo", 2]) == [None, 2]
    assert stopped not in processes()


@pytest.mark.slow
def test_hundreds_of_hanging_items_leave_no_process_and_no_open_file(make_pool: MakePool, processes: Processes) -> None:
    pool = make_pool(workers=3)
    pool.values(*[["nap", 0.01]] * 3)
    files, before = psutil.Process().num_fds(), len(processes())
    assert [outcome.failure for outcome in pool.run([["hang"]] * 300, deadline=0.02)] == ["timeout"] * 300
    assert pool.values(["echo", 1]) == [1]
    assert psutil.Process().num_fds() <= files + 2  # those of one to spare
    assert len(processes()) <= before + 1  # one to spare
    assert all(process.status() != psutil.STATUS_ZOMBIE for process in processes())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"task": "nowhere:act"}, r"for nowhere:act cannot start: ModuleNotFoundError: No module .*'nowhere'"),
        ({"task": "pool_tasks:no"}, r"for pool_tasks:no cannot start: AttributeError: .*no attribute 'no'"),
        ({"preload": ["pool_tasks:hang"]}, r"for pool_tasks:act did not start within 1 s"),
        ({"preload": ["pool_tasks:die_at_the_start"]}, "cannot start: the worker was ended by SIGKILL"),
    ],
)
def test_processes_that_cannot_start_are_an_error(
    make_pool: MakePool,
    processes: Processes,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    said: str,
) -> None:
    if settings == {"preload": ["pool_tasks:hang"]}:
        monkeypatch.setattr(worker_pool, "START_LIMIT", 1.0)
    with pytest.raises(RuntimeError, match=said):
        make_pool(**settings).run([["echo", 1]])
    assert processes() == []


# With Ctrl-C as a terminal has it: what a shell starts in the background ignores it, and hands that on.
BEGINNING = f"""
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, {str(Path(__file__).parent)!r})
from rlvr_vocab.verify.worker_pool import WorkerPool
pool = WorkerPool("pool_tasks:act", workers=2)
"""
READY = """
pool.run([["leave", 1]] * 6, 9.0)
pool.run([["nap", 0.1]] * 2, 9.0)
print("ready", flush=True)
"""

Script = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    """Starts a script of the given lines in a process group of its own, as a terminal does."""
    started = []

    def start(lines: str) -> subprocess.Popen[str]:
        path = tmp_path / "train.py"
        path.write_text(BEGINNING + lines, encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, "-X", "dev", str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
            cwd=tmp_path,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def processes_of_a_ready(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The workers of a script that has printed that it is ready."""
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    return psutil.Process(process.pid).children(recursive=True)


def those_left(processes: list[psutil.Process], seconds: float, but: int = 0) -> list[psutil.Process]:
    """Those that still live after so many seconds; sooner, if all but a few have ended."""
    until = time.monotonic() + seconds
    while len(left := [process for process in processes if is_alive(process)]) > but and time.monotonic() < until:
        time.sleep(0.02)
    return left


def is_alive(process: psutil.Process) -> bool:
    # The first process of a container may be slow to bury the orphans that it inherits.
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_script_without_main_guard_runs_once_ends_silently_and_takes_its_processes_along(script: Script) -> None:
    asked = 'print([outcome.value for outcome in pool.run([["echo", 1], ["leave", 1]], 9.0)])'
    process = script(f"{READY}\ntime.sleep(0.5)\n{asked}")
    processes = processes_of_a_ready(process)
    assert process.communicate(timeout=30) == ("[1, None]\n", "")
    assert process.returncode == 0 and len(processes) == 3 and those_left(processes, 0) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            'def call():\n    while True:\n        pool.run([["nap", 0.01]] * 10, 9.0)\n'
            "for _ in range(3):\n    threading.Thread(target=call, daemon=True).start()\ntime.sleep(0.4)",
            "",
        ),
        (
            'before = pool.run([["pid"]], 5.0)[0].value\nchild = os.fork()\nif child == 0:\n    raise SystemExit(0)\n'
            'os.waitpid(child, 0)\nprint(pool.run([["pid"]], 5.0)[0].value == before)',
            "True\n",
        ),
        (
            "signal.signal(signal.SIGPIPE, signal.SIG_DFL)\nimport psutil\n"
            'pool.run([["echo", 1]], 9.0)\npsutil.Process().children()[0].kill()\ntime.sleep(0.1)\n'
            'print([outcome.value for outcome in pool.run([["echo", 1], ["echo", 2]], 9.0)])',
            "[1, 2]\n",
        ),
    ],
    ids=["threads wait", "a forked child ends", "SIGPIPE has its default"],
)
def test_a_script_ends_silently(script: Script, lines: str, said: str) -> None:
    assert script(lines).communicate(timeout=30) == (said, "")


def test_a_task_beside_the_script_is_found(script: Script, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("def double(number): return 2 * number", encoding="utf-8")
    process = script('print(WorkerPool("beside:double").run([21], 9.0)[0].value)')
    assert process.communicate(timeout=30) == ("42\n", "")


def test_ctrl_c_interrupts_the_script_alone_and_no_process_stays(script: Script) -> None:
    process = script(READY + 'pool.run([["hang"]] * 2, 60.0)')
    processes = processes_of_a_ready(process)
    os.killpg(process.pid, signal.SIGINT)
    said, complained = process.communicate(timeout=10)
    assert (said, complained.splitlines()[-1]) == ("", "KeyboardInterrupt")
    assert "Warning" not in complained
    assert len(processes) >= 2 and those_left(processes, 0) == []


@pytest.mark.slow
def test_answers_that_came_while_the_script_was_stopped_count(script: Script) -> None:
    process = script(READY + 'print([outcome.value for outcome in pool.run([["nap", 0.4]] * 2, 0.5)])')
    processes_of_a_ready(process)
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.6)
    process.send_signal(signal.SIGCONT)
    assert process.communicate(timeout=10) == ("[0.4, 0.4]\n", "")


def test_a_killed_script_leaves_no_process_in_the_middle_of_hanging_items(script: Script) -> None:
    process = script(READY + 'pool.run([["hang"]] * 2, 1.0)')
    workers = processes_of_a_ready(process)
    process.kill()
    assert len(workers) >= 1 and those_left(workers, 3) == []
