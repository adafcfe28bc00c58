"""Whatever an item does, it has one outcome, and its neighbours have theirs."""

import os
import resource
import signal
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from .conftest import MakePool, Processes, echoes

pytestmark = pytest.mark.slow


def test_outcomes_stand_in_the_order_of_the_items_and_progress_is_told_after_each(make_pool: MakePool) -> None:
    naps, told = [0.2, 0.1, 0.0, 0.05, 0.0], []
    outcomes = make_pool(workers=3).run(
        [["nap", seconds] for seconds in naps], on_progress=lambda *done: told.append(done)
    )
    assert [outcome.value for outcome in outcomes] == naps
    assert all(1000 * seconds <= outcome.milliseconds for seconds, outcome in zip(naps, outcomes, strict=True))
    assert told == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]


@pytest.mark.parametrize("way", ["hang", "hang_in_c", "hang_with_signals_ignored"])
def test_a_hanging_item_is_ended_at_its_deadline_while_others_go_on(make_pool: MakePool, way: str) -> None:
    pool = make_pool(workers=2)
    pool.run([["echo"]])
    started = time.monotonic()
    hanging, *others = pool.run([[way], *echoes(*range(50))], deadline=0.5)
    assert 0.5 <= time.monotonic() - started < 1.5
    assert (hanging.failure, hanging.detail) == ("timeout", "no answer within 0.5 s")
    assert 500 <= hanging.milliseconds < 1500
    assert [other.value for other in others] == list(range(50))


def test_the_time_that_the_processes_take_to_start_is_no_items_time(make_pool: MakePool) -> None:
    assert make_pool(workers=1, deadline=0.3, preload=["pool_tasks:slow_start"]).values(["echo", 1]) == [1]


def test_an_item_that_eats_memory_is_ended_below_one_gigabyte(make_pool: MakePool, processes: Processes) -> None:
    pool, peak, done = make_pool(workers=2, deadline=30), [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            for process in processes():
                try:
                    peak.append(process.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    hungry, other = pool.run([["grow"], ["echo", 1]])
    done.set()
    watcher.join()
    assert (hungry.failure, hungry.detail) == ("too large", "more than 944 MB of memory")
    assert other.value == 1
    assert 300e6 < max(peak) < 1e9


def test_what_earlier_items_left_in_memory_is_not_held_against_an_item(make_pool: MakePool) -> None:
    assert make_pool(workers=1, deadline=10).values(["keep", 500], ["keep", 501]) == [500, 501]


@pytest.mark.parametrize(
    ("item", "failure", "detail"),
    [
        (["leave", 3], "died", "the worker ended with exit code 3"),
        (["send_oneself", "SIGSEGV"], "died", "the worker was ended by SIGSEGV"),
        (["send_oneself", "SIGKILL"], "died", "the worker was ended by SIGKILL"),
        (["send_oneself", "SIGALRM"], "timeout", "no answer within 2 s"),
        (["scribble"], "died", "the worker wrote something that is no answer"),
        (["answer_an_earlier_request"], "died", "the worker wrote something that is no answer"),
    ],
)
def test_an_item_that_crashes_its_worker_has_died_alone(
    make_pool: MakePool, item: list[Any], failure: str, detail: str
) -> None:
    before, crashing, after = make_pool(workers=1).run([["echo", 1], item, ["echo", 2]])
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
def test_what_a_task_raises_is_an_error_with_its_words(make_pool: MakePool, item: list[Any], detail: str) -> None:
    before, failing, after = make_pool(workers=1, deadline=10).run([["pid"], item, ["pid"]])
    assert (failing.value, failing.failure) == (None, "error")
    assert failing.detail.startswith(detail) and len(failing.detail) <= 300
    assert before.value == after.value


def test_any_json_value_crosses_both_ways_unchanged(make_pool: MakePool) -> None:
    texts = ["", "null \0 byte", "lone \ud800 and \udfff", "\u202eright to left, \U0001f600", "x" * 3_000_000]
    values = [*texts, None, False, {"nested": [1, 2.5, {"deep": [None]}]}, 10**4000, ["\udc00" * 100_000]]
    assert make_pool(workers=2).values(*echoes(*values)) == values


def test_a_worker_is_set_apart_from_its_caller(make_pool: MakePool, capfd: pytest.CaptureFixture[str]) -> None:
    previous = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    try:
        pool = make_pool(workers=1)
        pool.values(["shout"])
        assert pool.values(["standard_files_lead_nowhere"], ["alarm_state"]) == [[True] * 3, [True, False]]
        assert pool.values(["core_limit"], ["levels_reached", 5000]) == [0, 5000]
        assert pool.values(["session"]) != [os.getsid(0)]
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
        signal.signal(signal.SIGALRM, previous)
    for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGHUP"):  # they go to a whole job
        assert pool.run([["send_oneself", name]])[0].failure is None
    assert capfd.readouterr() == ("", "")


def test_a_worker_has_the_standard_files_and_its_connection_open_and_nothing_else(make_pool: MakePool) -> None:
    _, descriptors = make_pool(workers=2).values(["nap", 0.5], ["open_descriptors"])
    assert len(descriptors) == 4  # not that of the worker that naps


def test_texts_hash_alike_in_every_pool(make_pool: MakePool) -> None:
    assert len({make_pool(workers=1).values(["hash_of", "x"])[0] for _ in range(3)}) == 1


def test_an_item_whose_worker_is_killed_is_tried_once_more(make_pool: MakePool, tmp_path: Path) -> None:
    items = [["echo", 1], ["once_killed", str(tmp_path / "marker")], ["nap", 0.2], ["echo", 2]]
    assert make_pool(workers=2).values(*items) == [1, "well", 0.2, 2]
