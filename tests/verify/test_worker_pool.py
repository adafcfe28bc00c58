"""Each item has one outcome whatever it does, its neighbours have theirs, and no process is left over."""

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
from rlvr_vocab.verify.worker_pool import WorkerPool

MakePool = Callable[..., WorkerPool]
Processes = Callable[[], list[psutil.Process]]


@pytest.fixture
def make_pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[MakePool]:
    """Makes pools that are closed after the test."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    made = []

    def make(task: str = "pool_tasks:act", **settings: Any) -> WorkerPool:
        made.append(WorkerPool(task, **settings))
        return made[-1]

    yield make
    made.clear()


@pytest.fixture
def processes() -> Processes:
    """The descendants of this process, dead ones too, but for those that were there before the test."""
    before = set(psutil.Process().children(recursive=True))
    return lambda: [process for process in psutil.Process().children(recursive=True) if process not in before]


def values(pool: WorkerPool, *items: Any, deadline: float = 2.0) -> list[Any]:
    return [outcome.value for outcome in pool.run(items, deadline)]


def echoes(count: int) -> list[Any]:
    return [["echo", number] for number in range(count)]


def test_outcomes_stand_in_the_order_of_the_items_and_progress_follows_each(make_pool: MakePool) -> None:
    naps, progress = [0.2, 0.1, 0.0, 0.05, 0.0], []
    outcomes = make_pool(workers=3).run([["nap", each] for each in naps], 2.0, lambda *done: progress.append(done))
    assert [outcome.value for outcome in outcomes] == naps
    assert progress == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]


def test_a_hanging_item_is_ended_at_its_deadline_while_others_go_on(make_pool: MakePool) -> None:
    pool = make_pool(workers=2)
    pool.run([["echo"]], 2.0)
    started = time.monotonic()
    hanging, *others = pool.run([["hang"], *echoes(50)], 0.5)
    assert 0.5 <= time.monotonic() - started < 1.5
    assert (hanging.failure, hanging.detail) == ("timeout", "no answer within 0.5 s")
    assert [other.value for other in others] == list(range(50))


def test_the_time_that_the_processes_take_to_start_is_no_items_time(make_pool: MakePool) -> None:
    assert values(make_pool(workers=1, preload="pool_tasks:slow_start"), ["echo", 1], deadline=0.3) == [1]


def test_an_item_that_eats_memory_is_ended_alone(make_pool: MakePool) -> None:
    hungry, other = make_pool(workers=2).run([["grow"], ["echo", 1]], 30.0)
    assert (hungry.failure, hungry.detail, other.value) == ("too large", "more than 944 MB of memory", 1)


@pytest.mark.parametrize(
    ("item", "failure", "detail"),
    [
        (["leave", 3], "died", "the worker ended with exit code 3"),
        (["send_oneself", "SIGSEGV"], "died", "the worker was ended by SIGSEGV"),
        (["send_oneself", "SIGKILL"], "died", "the worker was ended by SIGKILL"),
        (["write_to_every_file", '"other"\n'], "died", "the worker wrote something that is no answer"),
        (["write_to_every_file", '[0, 1, ""]\n'], "died", "the worker wrote something that is no answer"),
    ],
)
def test_an_item_that_crashes_its_worker_has_died_alone(
    make_pool: MakePool, item: list[Any], failure: str, detail: str
) -> None:
    before, crashing, after = make_pool(workers=1).run([["echo", 1], item, ["echo", 2]], 2.0)
    assert (crashing.value, crashing.failure, crashing.detail) == (None, failure, detail)
    assert (before.value, after.value) == (1, 2)


@pytest.mark.parametrize(
    ("item", "detail"),
    [
        (["fail", "ValueError", "no\n number"], "ValueError: no number"),
        (["fail", "ValueError", "x" * 10_000], "ValueError: " + "x" * 288),
        (["fail", "SystemExit", "1"], "SystemExit: 1"),
        (["not_json"], "TypeError: Object of type object is not JSON serializable"),
        (["recurse_through_c"], "RecursionError: maximum recursion depth exceeded"),
    ],
)
def test_an_exception_of_a_task_is_an_error_with_its_message(make_pool: MakePool, item: Any, detail: str) -> None:
    before, failing, after = make_pool(workers=1).run([["pid"], item, ["pid"]], 10.0)
    assert (failing.value, failing.failure) == (None, "error")
    assert failing.detail.startswith(detail) and len(failing.detail) <= 300
    assert before.value == after.value


def test_any_json_value_crosses_both_ways_unchanged(make_pool: MakePool) -> None:
    texts = ["", "null \0 byte", "lone \ud800 and \udfff", "\u202eright to left, \U0001f600", "x" * 3_000_000]
    sent = [*texts, None, False, {"nested": [1, 2.5, {"deep": [None]}]}, 10**4000, ["\udc00" * 100_000]]
    assert values(make_pool(workers=2), *(["echo", value] for value in sent)) == sent


def test_a_worker_is_set_apart_from_its_caller(make_pool: MakePool, capfd: pytest.CaptureFixture[str]) -> None:
    pool = make_pool(workers=1)
    previous = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    try:
        assert values(pool, ["confinement"]) == [[True, False, 0, True, [True] * 3]]
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
        signal.signal(signal.SIGALRM, previous)
    for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGHUP"):  # they go to a whole job
        assert pool.run([["send_oneself", name]], 2.0)[0].failure is None
    assert capfd.readouterr() == ("", "")


def test_processes_start_when_they_are_needed_stay_and_end_with_the_pool(
    monkeypatch: pytest.MonkeyPatch, processes: Processes
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    pool = WorkerPool("pool_tasks:act", workers=3)
    assert pool.run([], 2.0) == [] and processes() == []
    for items, workers in [(1, 1), (2, 2), (5, 3)]:
        values(pool, *[["nap", 0.05]] * items)
        assert len(processes()) == workers
    kept = processes()
    for _ in range(20):
        values(pool, *echoes(3))
    assert processes() == kept
    del pool
    assert processes() == []


def test_threads_that_call_at_once_get_their_own_answers(make_pool: MakePool) -> None:
    pool, answers = make_pool(workers=2), {}

    def call(name: int) -> None:
        answers[name] = values(pool, *(["echo", 1000 * name + place] for place in range(300)), ["hang"], deadline=0.3)

    threads = [threading.Thread(target=call, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert answers == {name: [*range(1000 * name, 1000 * name + 300), None] for name in range(4)}


def test_after_a_fork_child_and_parent_have_processes_of_their_own(make_pool: MakePool) -> None:
    pool = make_pool(workers=1)
    [parents] = values(pool, ["pid"])
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os.write(writing, repr(values(pool, ["echo", "from the child"], ["pid"])).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer, childs = eval(pipe.read())
    os.waitpid(child, 0)
    assert answer == "from the child" and childs != parents
    assert values(pool, ["pid"]) == [parents]


@pytest.mark.parametrize("moment", [0.0, 0.3])
def test_an_interrupted_batch_leaves_the_pool_in_step(make_pool: MakePool, processes: Processes, moment: float) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    pool = make_pool(workers=2)
    if moment:
        values(pool, *[["nap", 0.01]] * 2)
    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, moment or 0.02)  # 0.02 s: in the middle of the start
        with pytest.raises(KeyboardInterrupt):
            pool.run([*echoes(100), ["nap", 0.4], ["nap", 5], *echoes(100)], 10.0)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert values(pool, *(["echo", number] for number in range(1000, 1010))) == list(range(1000, 1010))
    # A worker that was interrupted at its birth ends once it has imported its task.
    assert len(those_left(processes(), 5, but=2)) <= 2


def test_processes_killed_between_two_batches_are_replaced(make_pool: MakePool, processes: Processes) -> None:
    pool = make_pool(workers=2)
    for victims in (slice(0, 1), slice(None)):
        assert values(pool, *[["nap", 0.05]] * 2) == [0.05] * 2
        for process in processes()[victims]:
            process.kill()
        time.sleep(0.05)
        assert values(pool, *echoes(20)) == list(range(20))
    assert all(process.status() != psutil.STATUS_ZOMBIE for process in processes())


@pytest.mark.slow
def test_many_hanging_items_leave_no_process_and_no_open_file(make_pool: MakePool, processes: Processes) -> None:
    pool = make_pool(workers=3)
    values(pool, *[["nap", 0.01]] * 3)
    files, before = psutil.Process().num_fds(), len(processes())
    assert [outcome.failure for outcome in pool.run([["hang"]] * 60, 0.02)] == ["timeout"] * 60
    assert psutil.Process().num_fds() <= files and len(processes()) <= before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"task": "nowhere:act"}, "for nowhere:act cannot start: the worker ended with exit code 1"),
        ({"preload": "pool_tasks:hang"}, "for pool_tasks:act cannot start: no answer within 1 s"),
        ({"preload": "pool_tasks:die_at_the_start"}, "cannot start: the worker was ended by SIGKILL"),
    ],
)
def test_processes_that_cannot_start_are_an_error(
    make_pool: MakePool, processes: Processes, monkeypatch: pytest.MonkeyPatch, settings: Any, message: str
) -> None:
    if "hang" in str(settings):
        monkeypatch.setattr(worker_pool, "START_LIMIT", 1.0)
    with pytest.raises(RuntimeError, match=message):
        make_pool(**settings).run([["echo", 1]], 2.0)
    assert processes() == []


# With Ctrl-C as a terminal has it: what a shell starts in the background ignores it, and hands that on.
READY = f"""
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, {str(Path(__file__).parent)!r})
from rlvr_vocab.verify.worker_pool import WorkerPool
pool = WorkerPool("pool_tasks:act", workers=2)
pool.run([["leave", 1]] * 6, 9.0)
pool.run([["nap", 0.1]] * 2, 9.0)
print("ready", flush=True)
"""

Script = Callable[[str], tuple[subprocess.Popen[str], list[psutil.Process]]]


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    """Starts a script in a process group of its own, as a terminal does; returns it with its ready workers."""
    started = []

    def start(lines: str) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
        path = tmp_path / "train.py"
        path.write_text(READY + lines, encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, "-X", "dev", str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(0.2)
        return process, psutil.Process(process.pid).children(recursive=True)

    yield start
    for process in started:
        process.kill()
        process.communicate()


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
    answers = 'print([outcome.value for outcome in pool.run([["echo", 1], ["leave", 1]], 9.0)])'
    process, workers = script(f"time.sleep(0.5)\n{answers}")
    assert process.communicate(timeout=30) == ("[1, None]\n", "")
    assert process.returncode == 0 and len(workers) == 2 and those_left(workers, 0) == []


@pytest.mark.slow
def test_a_forked_child_that_ends_leaves_the_workers_alone(script: Script) -> None:
    fork = "child = os.fork()\nif child == 0:\n    raise SystemExit(0)\nos.waitpid(child, 0)\n"
    pid = 'pool.run([["pid"]], 5.0)[0].value'
    process, _ = script(f"before = {pid}\n{fork}print({pid} == before)")
    assert process.communicate(timeout=30) == ("True\n", "")


def test_ctrl_c_interrupts_the_script_alone_and_no_process_stays(script: Script) -> None:
    process, workers = script('pool.run([["hang"]] * 2, 60.0)')
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=10)
    assert (output, errors.splitlines()[-1]) == ("", "KeyboardInterrupt")
    assert "Warning" not in errors
    assert len(workers) >= 2 and those_left(workers, 0) == []


def test_a_killed_script_leaves_no_process_in_the_middle_of_hanging_items(script: Script) -> None:
    process, workers = script('pool.run([["hang"]] * 2, 1.0)')
    process.kill()
    assert len(workers) >= 1 and those_left(workers, 3) == []
