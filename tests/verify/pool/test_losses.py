"""Processes that are killed from outside are replaced, and nothing is left over."""

import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlvr_vocab.verify.pool import WorkerPool
from rlvr_vocab.verify.pool import processes as pool_processes

MakePool = Callable[..., WorkerPool]
Processes = Callable[[], list[psutil.Process]]


def values(pool: WorkerPool, items: list[list[Any]]) -> list[Any]:
    return [outcome.value for outcome in pool.run(items)]


@pytest.mark.parametrize("way", ["once_killed", "killed_with_its_template"])
def test_an_item_whose_processes_are_killed_is_tried_once_more(make_pool: MakePool, tmp_path: Path, way: str) -> None:
    items: list[list[Any]] = [["echo", 1], [way, str(tmp_path / "marker")], ["nap", 0.2], ["echo", 2]]
    assert values(make_pool(workers=2), items) == [1, "well", 0.2, 2]


def test_a_late_item_is_ended_even_if_the_template_is_dead(make_pool: MakePool, processes: Processes) -> None:
    pool = make_pool(workers=1, deadline=0.3)
    (worker,) = values(pool, [["pid"]])
    assert values(pool, [["kill_the_template_and_hang"], ["echo", 1]]) == [None, 1]
    assert not psutil.pid_exists(worker) or psutil.Process(worker).status() == psutil.STATUS_ZOMBIE
    assert len(processes()) == 2


def test_a_batch_is_completed_while_its_processes_are_killed_at_random(
    make_pool: MakePool, processes: Processes
) -> None:
    pool, stop = make_pool(workers=3), threading.Event()
    values(pool, [["nap", 0.05]] * 3)

    def kill_workers_and_templates() -> None:
        for turn in range(6):
            if stop.wait(0.15):
                return
            template, *workers = processes()
            (template if turn % 3 == 2 or not workers else workers[0]).kill()

    killer = threading.Thread(target=kill_workers_and_templates)
    killer.start()
    numbers = list(range(120))
    outcomes = pool.run([["nap", 0.01 + number / 1e6] for number in numbers])
    stop.set()
    killer.join()
    assert [outcome.failure for outcome in outcomes].count(None) >= 118
    assert {outcome.failure for outcome in outcomes} <= {None, "died"}
    assert values(pool, [["echo", 1]]) == [1]


def test_processes_killed_between_two_batches_are_replaced(make_pool: MakePool, processes: Processes) -> None:
    pool = make_pool(workers=2)
    for victims in (slice(1, None), slice(0, 1), slice(None)):  # workers, template, all
        assert values(pool, [["nap", 0.05]] * 2) == [0.05] * 2
        for process in processes()[victims]:
            process.kill()
        time.sleep(0.05)
        assert values(pool, [["echo", number] for number in range(20)]) == list(range(20))
    assert all(process.status() != psutil.STATUS_ZOMBIE for process in processes())


def test_a_stopped_template_is_given_up(
    make_pool: MakePool, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_processes, "REPLY_LIMIT", 0.3)
    monkeypatch.setattr(pool_processes, "STOP_LIMIT", 0.3)
    pool = make_pool(workers=1, deadline=0.3)
    values(pool, [["echo", 1]])
    stopped = processes()[0]
    stopped.suspend()
    assert values(pool, [["hang"], ["echo", 2]]) == [None, 2]
    assert stopped not in processes()


def test_a_reply_that_was_not_waited_for_is_not_taken_for_a_later_one(
    make_pool: MakePool, processes: Processes
) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    pool = make_pool(workers=1, deadline=0.2)
    values(pool, [["echo", 1]])
    template = processes()[0]
    template.suspend()
    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)  # when the template has been told to end the worker
        with pytest.raises(KeyboardInterrupt):
            pool.run([["hang"]])
    finally:
        signal.signal(signal.SIGALRM, previous)
    template.resume()
    crashed, well = pool.run([["leave", 3], ["echo", 2]])
    assert (crashed.detail, well.value) == ("the worker ended with exit code 3", 2)


def test_hundreds_of_hanging_items_leave_no_process_and_no_open_file(make_pool: MakePool, processes: Processes) -> None:
    pool = make_pool(workers=3, deadline=0.02)
    values(pool, [["nap", 0.01]] * 3)
    files, before = psutil.Process().num_fds(), len(processes())
    outcomes = pool.run([["hang"]] * 300)
    assert [outcome.failure for outcome in outcomes] == ["timeout"] * 300
    assert values(pool, [["echo", 1]]) == [1]
    assert psutil.Process().num_fds() <= files
    assert len(processes()) <= before
    assert all(process.status() != psutil.STATUS_ZOMBIE for process in processes())


def test_a_task_that_cannot_be_imported_is_named_with_the_reason(make_pool: MakePool, processes: Processes) -> None:
    with pytest.raises(RuntimeError, match=r"for nowhere:act cannot start: ModuleNotFoundError: No module .*'nowhere'"):
        make_pool("nowhere:act").run([1])
    with pytest.raises(RuntimeError, match=r"for pool_tasks:no cannot start: AttributeError: .*no attribute 'no'"):
        make_pool("pool_tasks:no").run([1])
    assert processes() == []


def test_what_leaves_no_room_for_items_is_an_error_at_the_start(make_pool: MakePool) -> None:
    with pytest.raises(RuntimeError, match="cannot start: MemoryError: memory_limit=50000000 leaves no room beside"):
        make_pool(memory_limit=50_000_000).run([["echo", 1]])


def test_an_interpreter_that_is_not_there_is_an_error(make_pool: MakePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(RuntimeError, match=r"for pool_tasks:act cannot start: .*/no/such/python"):
        make_pool().run([["echo", 1]])


def test_a_system_that_forks_no_more_processes_is_an_error(make_pool: MakePool, processes: Processes) -> None:
    with pytest.raises(RuntimeError, match="lost 5 times while they started, the last time: it has closed"):
        make_pool(preload=["pool_tasks:refuse_to_fork"]).run([["echo", 1]])
    assert processes() == []


def test_a_start_that_takes_too_long_is_an_error(
    make_pool: MakePool, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_processes, "START_LIMIT", 0.3)
    monkeypatch.setattr(pool_processes, "STOP_LIMIT", 0.1)
    with pytest.raises(RuntimeError, match=r"for pool_tasks:act did not start within 0\.3 s"):
        make_pool(preload=["pool_tasks:hang"]).run([["echo", 1]])
    assert processes() == []


def test_processes_that_are_killed_at_every_start_are_an_error(make_pool: MakePool, processes: Processes) -> None:
    with pytest.raises(RuntimeError, match="lost 5 times while they started, the last time: killed by SIGKILL"):
        make_pool(preload=["pool_tasks:die_at_the_start"]).run([["echo", 1]])
    assert processes() == []
