"""Who may call a pool: threads, event loops, forked and spawned children, and callers that are interrupted."""

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.verify.pool import WorkerPool, shared_pool

MakePool = Callable[..., WorkerPool]
Processes = Callable[[], list[psutil.Process]]


def echoes(*values: Any) -> list[list[Any]]:
    return [["echo", value] for value in values]


def test_nothing_starts_before_the_first_item(make_pool: MakePool, processes: Processes) -> None:
    pool = make_pool(workers=2)
    assert pool.run([]) == []
    assert processes() == []


def test_no_more_workers_start_than_there_are_items(make_pool: MakePool, processes: Processes) -> None:
    pool = make_pool(workers=3)
    for items, workers in [(1, 1), (2, 2), (5, 3)]:
        pool.run([["nap", 0.05]] * items)
        assert len(processes()) == 1 + workers


def test_workers_are_kept_from_one_call_to_the_next(make_pool: MakePool, processes: Processes) -> None:
    pool = make_pool(workers=2)
    pool.run([["nap", 0.05]] * 2)
    kept = processes()
    for _ in range(20):
        pool.run(echoes(1, 2, 3))
    assert processes() == kept


def test_closing_ends_all_processes_and_a_closed_pool_says_so(make_pool: MakePool, processes: Processes) -> None:
    pool = make_pool(workers=2)
    pool.run([["nap", 0.05]] * 2)
    pool.close()
    pool.close()
    assert processes() == []
    with pytest.raises(RuntimeError, match="is closed"):
        pool.run(echoes(1))


def test_a_pool_that_nobody_holds_ends_its_processes(processes: Processes) -> None:
    assert WorkerPool("pool_tasks:act").run(echoes(1))[0].value == 1
    assert processes() == []


def test_there_is_one_shared_pool_for_a_task_and_its_settings() -> None:
    assert shared_pool("pool_tasks:act") is shared_pool("pool_tasks:act", preload=[])
    assert shared_pool("pool_tasks:act") is not shared_pool("pool_tasks:act", deadline=5.0)
    assert shared_pool("pool_tasks:act") is not shared_pool("pool_tasks:echo")


@pytest.mark.parametrize("settings", [{"workers": 0}, {"deadline": 0}])
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=f"{next(iter(settings))}=0 for pool_tasks:act"):
        WorkerPool("pool_tasks:act", **settings)


def test_threads_that_call_at_once_get_their_own_answers(make_pool: MakePool) -> None:
    pool, answers = make_pool(workers=2, deadline=0.2), {}

    def call(name: int) -> None:
        numbers = range(1000 * name, 1000 * name + 300)
        answers[name] = [outcome.value for outcome in pool.run([*echoes(*numbers), ["hang"]])]

    threads = [threading.Thread(target=call, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert answers == {name: [*range(1000 * name, 1000 * name + 300), None] for name in range(6)}


def test_no_thread_waits_for_the_batch_of_another(make_pool: MakePool, processes: Processes) -> None:
    pool = make_pool(workers=1, deadline=20)
    slow = threading.Thread(target=lambda: pool.run([["nap", 1.5]]))
    slow.start()
    time.sleep(0.2)
    assert pool.run(echoes(1))[0].value == 1
    assert slow.is_alive()
    slow.join()
    assert len(processes()) == 2  # the template and the one worker that the pool may keep


def test_a_pool_works_inside_a_running_event_loop(make_pool: MakePool) -> None:
    pool = make_pool(workers=2)

    async def main() -> list[Any]:
        aside = await asyncio.gather(*(asyncio.to_thread(pool.run, echoes(number)) for number in range(4)))
        return [outcome.value for outcomes in [pool.run(echoes(9)), *aside] for outcome in outcomes]

    assert asyncio.run(main()) == [9, 0, 1, 2, 3]


def answers_in_a_fork(pool: WorkerPool) -> list[Any]:
    """What a pool answers in a child made by `os.fork`, which must come within 20 s."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        answers = [outcome.value for outcome in pool.run([["echo", "from the child"], ["pid"]])]
        os.write(writing, repr(answers).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return eval(said) if said else []


def test_after_a_fork_child_and_parent_have_processes_of_their_own(make_pool: MakePool) -> None:
    pool = make_pool(workers=1)
    parents = pool.run([["pid"]])[0].value
    answer, childs = answers_in_a_fork(pool)
    assert answer == "from the child"
    assert childs != parents
    assert pool.run([["pid"]])[0].value == parents


def test_a_fork_in_the_middle_of_another_threads_batch_disturbs_neither(make_pool: MakePool) -> None:
    pool, done, answers = make_pool(workers=2), threading.Event(), []

    def call() -> None:
        while not done.is_set():  # every crash makes the thread fork a worker, with the lock held
            answers.append([outcome.value for outcome in pool.run([["leave", 1], *echoes(1, 2), ["leave", 1]])])

    thread = threading.Thread(target=call)
    thread.start()
    try:
        children = [answers_in_a_fork(pool)[:1] for _ in range(15)]
    finally:
        done.set()
        thread.join(20)
    assert children == [["from the child"]] * 15
    assert len(answers) > 15 and all(answer == [None, 1, 2, None] for answer in answers)


def test_a_forked_child_holds_none_of_the_parents_connections(make_pool: MakePool) -> None:
    before = open_files()
    pool = make_pool(workers=2)
    pool.run([["nap", 0.05]] * 2)
    assert len(open_files()) == len(before) + 3
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b"%d" % len(open_files()))
        os._exit(0)
    os.waitpid(child, 0)
    # The pipe came to them; pools that other tests have shared may have gone.
    assert int(os.read(reading, 10)) <= len(before) + 2
    os.close(reading)
    os.close(writing)


def open_files() -> list[Path]:
    return list(Path("/proc/self/fd").iterdir())


def say_what_the_pool_answers(queue: Any, folder: str) -> None:
    import sys

    sys.path.insert(0, folder)
    queue.put([outcome.value for outcome in shared_pool("pool_tasks:act").run(echoes(1, 2))])


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_of_multiprocessing_may_call(method: str, tmp_path: Path) -> None:
    if method == "fork":
        assert shared_pool("pool_tasks:act").run(echoes(0))[0].value == 0
    context: Any = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    child = context.Process(target=say_what_the_pool_answers, args=(queue, str(Path(__file__).parent)))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    assert queue.get() == [1, 2]


def test_the_callers_own_alarm_still_rings(make_pool: MakePool) -> None:
    rung: list[int] = []
    previous = signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        outcomes = make_pool(workers=2, deadline=0.5).run([["hang"], ["nap", 0.1], ["nap", 0.1]])
        assert signal.getsignal(signal.SIGALRM) not in (previous, signal.SIG_DFL)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert rung == [signal.SIGALRM]
    assert [outcome.failure for outcome in outcomes] == ["timeout", None, None]


@pytest.mark.parametrize("moment", [0.0, 0.01, 0.05, 0.3])
def test_an_interrupted_batch_leaves_the_pool_in_step(make_pool: MakePool, processes: Processes, moment: float) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    pool = make_pool(workers=2, deadline=10)
    if moment:
        pool.run([["nap", 0.01]] * 2)
    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, moment or 0.02)  # 0.02 s: in the middle of the start
        with pytest.raises(KeyboardInterrupt):
            pool.run([*echoes(*range(100)), ["nap", 0.4], ["nap", 5], *echoes(*range(100))])
    finally:
        signal.signal(signal.SIGALRM, previous)
    started = time.monotonic()
    assert [outcome.value for outcome in pool.run(echoes(*range(1000, 1010)))] == list(range(1000, 1010))
    assert time.monotonic() - started < 3
    assert len(processes()) <= 3


def test_a_progress_report_that_raises_leaves_the_pool_in_step(make_pool: MakePool) -> None:
    def report(done: int, total: int) -> None:
        raise ZeroDivisionError

    pool = make_pool(workers=2)
    with pytest.raises(ZeroDivisionError):
        pool.run([["echo", 1], ["nap", 1], ["echo", 2]], on_progress=report)
    assert [outcome.value for outcome in pool.run(echoes(3, 4))] == [3, 4]


def test_an_item_that_is_no_json_value_is_the_callers_error(make_pool: MakePool) -> None:
    pool = make_pool(workers=2)
    with pytest.raises(TypeError, match="not JSON serializable"):
        pool.run([["echo", 1], ["echo", object()]])
    assert [outcome.value for outcome in pool.run(echoes(3, 4))] == [3, 4]
