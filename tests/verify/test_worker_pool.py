"""Each item has one outcome whatever it does, its neighbours have theirs, and no process is left over."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from rlvr_vocab.verify import worker_pool
from rlvr_vocab.verify.worker_pool import WorkerPool


@pytest.fixture
def make_pool(monkeypatch):
    """Makes pools that are closed after the test."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    made = []

    def make(task="pool_tasks:act", **settings):
        made.append(WorkerPool(task, **settings))
        return made[-1]

    yield make
    made.clear()


@pytest.fixture
def processes():
    """The descendants of this process, dead ones too, but for those that were there before the test."""
    before = set(psutil.Process().children(recursive=True))
    return lambda: [process for process in psutil.Process().children(recursive=True) if process not in before]


def values(pool, *items, deadline=2.0):
    return [outcome.value for outcome in pool.run(items, deadline)]


def echoes(count):
    return [["echo", number] for number in range(count)]


def test_outcomes_stand_in_the_order_of_the_items_and_progress_follows_each(make_pool):
    naps, progress = [0.2, 0.1, 0.0, 0.05, 0.0], []
    outcomes = make_pool(workers=3).run([["nap", each] for each in naps], 2.0, lambda *done: progress.append(done))
    assert [outcome.value for outcome in outcomes] == naps
    assert progress == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]


def test_a_hanging_item_is_ended_at_its_deadline_while_others_go_on(make_pool):
    pool = make_pool(workers=2, preload="pool_tasks:slow_start")
    assert values(pool, ["echo", 1], deadline=0.3) == [1]  # the start is no item's time
    started = time.monotonic()
    hanging, *others = pool.run([["hang"], *echoes(50)], 0.5)
    assert 0.5 <= time.monotonic() - started < 2.0
    assert (hanging.failure, hanging.detail) == ("timeout", "no answer within 0.5 s")
    assert [other.value for other in others] == list(range(50))


NO_ANSWER = "the worker wrote an invalid answer"


@pytest.mark.parametrize(
    ("item", "failure", "detail"),
    [
        (["leave", 3], "died", "the worker ended with exit code 3"),
        (["send_oneself", "SIGSEGV"], "died", "the worker was ended by SIGSEGV"),
        (["send_oneself", "SIGKILL"], "died", "the worker was ended by SIGKILL"),
        (["write_to_every_file", '"other"\n'], "died", NO_ANSWER),
        (["write_to_every_file", '[0, 1, ""]\n'], "died", NO_ANSWER),
        (["grow"], "too large", "more than 944 MB of memory"),
        (["fail", "ValueError", "no\n number"], "error", "ValueError: no number"),
        (["fail", "ValueError", "x" * 10_000], "error", "ValueError: " + "x" * 288),
        (["fail", "SystemExit", "1"], "error", "SystemExit: 1"),
        (["not_json"], "error", "TypeError: Object of type object is not JSON serializable"),
        (["recurse_through_c"], "error", "RecursionError: maximum recursion depth exceeded"),
    ],
)
def test_an_item_fails_alone_and_only_an_exception_leaves_its_worker(make_pool, item, failure, detail):
    before, failing, after = make_pool(workers=1).run([["pid"], item, ["pid"]], 10.0)
    assert (failing.value, failing.failure, failing.detail[:300]) == (None, failure, failing.detail)
    assert failing.detail.startswith(detail)
    assert (before.value == after.value) is (failure == "error") and None not in (before.value, after.value)


def test_an_item_is_tried_again_where_its_worker_ended_by_no_fault_of_it(make_pool, tmp_path, monkeypatch):
    pool = make_pool(workers=1)
    assert values(pool, *[["keep", 300]] * 4) == [300, 600, 300, 600]  # of 900 MB, interpreter included
    assert values(pool, ["die_once", str(tmp_path / "died")]) == ["alive"]
    monkeypatch.setenv("DIES_ONCE", str(tmp_path / "died too"))  # as it starts
    assert values(make_pool(workers=1, preload="pool_tasks:die_once"), ["echo", 1]) == [1]


def test_any_json_value_crosses_both_ways_unchanged(make_pool):
    sent = ["null \0 byte", "lone \ud800", "x" * 3_000_000, None, {"nested": [1, 2.5, {"deep": [None]}]}, 10**4000]
    assert values(make_pool(workers=2), *(["echo", value] for value in sent)) == sent


def test_a_worker_is_set_apart_from_its_caller(make_pool, capfd):
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


def test_processes_start_when_they_are_needed_stay_and_end_with_the_pool(monkeypatch, processes):
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
    for process in kept[:2]:
        process.kill()
        process.wait()
    assert values(pool, *echoes(20)) == list(range(20))  # those that were killed in between are replaced
    files = psutil.Process().num_fds()
    assert [outcome.failure for outcome in pool.run([["hang"]] * 9, 0.02)] == ["timeout"] * 9
    assert psutil.Process().num_fds() <= files and len(processes()) <= 3
    del pool
    assert processes() == []


def test_threads_that_call_at_once_get_their_own_answers(make_pool):
    pool, answers = make_pool(workers=2), {}

    def call(name):
        answers[name] = values(pool, *(["echo", 1000 * name + place] for place in range(300)), ["hang"], deadline=0.3)

    threads = [threading.Thread(target=call, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert answers == {name: [*range(1000 * name, 1000 * name + 300), None] for name in range(4)}


def test_after_a_fork_child_and_parent_have_processes_of_their_own(make_pool):
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


def test_an_interrupted_batch_leaves_the_pool_in_step(make_pool, processes):
    def interrupt(number, frame):
        raise KeyboardInterrupt

    pool = make_pool(workers=2)
    values(pool, *[["nap", 0.01]] * 2)
    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            pool.run([*echoes(100), ["nap", 0.4], ["nap", 5], *echoes(100)], 10.0)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert values(pool, *(["echo", number] for number in range(1000, 1010))) == list(range(1000, 1010))
    assert len(processes()) <= 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"task": "nowhere:act"}, "for nowhere:act cannot start: the worker ended with exit code 1"),
        ({"preload": "pool_tasks:hang"}, "for pool_tasks:act cannot start: no answer within 1 s"),
        ({"preload": "pool_tasks:die_at_the_start"}, "cannot start: the worker was ended by SIGKILL"),
    ],
)
def test_processes_that_cannot_start_are_an_error(make_pool, processes, monkeypatch, settings, message):
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
# A child that ends by itself leaves the workers alone.
ENDS_ITSELF = """
if os.fork() == 0:
    raise SystemExit(0)
os.wait()
print([outcome.value for outcome in pool.run([["echo", 1], ["leave", 1]], 9.0)])
"""
HANGS = 'pool.run([["hang"]] * 2, 1.0)'


@pytest.mark.parametrize(
    ("lines", "end", "output", "error"),
    [
        (ENDS_ITSELF, None, "[1, None]\n", ""),  # without a main guard
        (HANGS, signal.SIGINT, "", "KeyboardInterrupt"),
        (HANGS, signal.SIGKILL, "", ""),
    ],
)
def test_a_script_takes_its_processes_along(tmp_path, lines, end, output, error):
    path = tmp_path / "train.py"
    path.write_text(READY + lines, encoding="utf-8")
    command = [sys.executable, "-X", "dev", str(path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, process_group=0) as script:  # as a terminal starts one
        assert script.stdout is not None and script.stdout.readline() == "ready\n"
        workers = psutil.Process(script.pid).children(recursive=True)
        time.sleep(0.2)
        if end is not None:
            os.killpg(script.pid, end)
        printed, errors = script.communicate(timeout=30)
    assert (printed, errors.rstrip().rpartition("\n")[2]) == (output, error) and "Warning" not in errors
    assert len(workers) >= 2
    assert psutil.wait_procs(workers, 4)[1] == []
