"""Whatever an item does, it has one outcome, and its neighbours have theirs."""

import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from rlvr_vocab.verify.pool import WorkerPool, processes

MakePool = Callable[..., WorkerPool]


def test_outcomes_stand_in_the_order_of_the_items(make_pool: MakePool) -> None:
    naps = [0.2, 0.1, 0.0, 0.05, 0.0]
    outcomes = make_pool(workers=3).run([["nap", seconds] for seconds in naps])
    assert [outcome.value for outcome in outcomes] == naps
    assert all(
        1000 * seconds <= outcome.milliseconds < 1000 * seconds + 150
        for seconds, outcome in zip(naps, outcomes, strict=True)
    )


@pytest.mark.parametrize("way", ["hang", "hang_in_c", "hang_with_signals_ignored"])
def test_a_hanging_item_is_ended_at_its_deadline_while_others_go_on(make_pool: MakePool, way: str) -> None:
    pool = make_pool(workers=2, deadline=0.5)
    pool.run([["echo"]])
    started = time.monotonic()
    hanging, *others = pool.run([[way], *(["echo", number] for number in range(50))])
    assert 0.5 <= time.monotonic() - started < 1.0
    assert (hanging.failure, hanging.detail) == ("timeout", "no answer within 0.5 s")
    assert 500 <= hanging.milliseconds < 1000
    assert [other.value for other in others] == list(range(50))


def test_the_time_that_the_processes_take_to_start_is_no_items_time(make_pool: MakePool) -> None:
    pool = make_pool(workers=1, deadline=0.2, preload=["pool_tasks", "pool_tasks:slow_start"])
    assert pool.run([["echo", 1]])[0].value == 1


@pytest.mark.parametrize("way", ["grow_bytes", "grow_list"])
def test_an_item_that_eats_memory_is_ended_below_one_gigabyte(
    make_pool: MakePool, processes: Callable[[], list[psutil.Process]], way: str
) -> None:
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
    hungry, other = pool.run([[way], ["echo", 1]])
    done.set()
    watcher.join()
    assert (hungry.failure, hungry.detail) == ("too large", "more than 944 MB of memory")
    assert other.value == 1
    assert 300e6 < max(peak) < 1e9


def test_where_the_system_enforces_no_memory_limit_the_caller_does(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "MEMORY_LIMITED", "a word that no template says")
    pool = make_pool(workers=2, deadline=10, memory_limit=200 * 2**20)
    hungry, other = pool.run([["grow_without_limit"], ["echo", 1]])
    assert (hungry.failure, other.value) == ("too large", 1)
    assert hungry.milliseconds < 5000


def test_what_earlier_items_left_in_memory_is_not_held_against_an_item(make_pool: MakePool) -> None:
    outcomes = make_pool(workers=1).run([["keep", 500], ["keep", 501]])
    assert [outcome.value for outcome in outcomes] == [500, 501]


@pytest.mark.parametrize(
    ("item", "detail"),
    [
        (["leave", 3], "the worker ended with exit code 3"),
        (["send_oneself", "SIGSEGV"], "the worker was ended by SIGSEGV"),
        (["send_oneself", "SIGKILL"], "the worker was ended by SIGKILL"),
        (["overflow_the_stack"], "the worker was ended by SIGSEGV"),
        (["scribble"], "the worker wrote something that is no answer"),
        (["answer_an_earlier_request"], "the worker wrote something that is no answer"),
    ],
)
def test_an_item_that_crashes_its_worker_has_died_alone(make_pool: MakePool, item: list[Any], detail: str) -> None:
    before, crashing, after = make_pool(workers=1).run([["echo", 1], item, ["echo", 2]])
    assert (crashing.value, crashing.failure, crashing.detail) == (None, "died", detail)
    assert (before.value, after.value) == (1, 2)


@pytest.mark.parametrize(
    ("item", "detail"),
    [
        (["fail", "ValueError", "no\n number"], "ValueError: no number"),
        (["fail", "ValueError", "x" * 10_000], "ValueError: " + "x" * 288),
        (["fail", "SystemExit", "1"], "SystemExit: 1"),
        (["fail", "KeyboardInterrupt", ""], "KeyboardInterrupt: "),
        (["not_json"], "TypeError: Object of type object is not JSON serializable"),
        (["recurse"], "RecursionError: maximum recursion depth exceeded"),
        (["recurse_through_c"], "RecursionError: maximum recursion depth exceeded"),
    ],
)
def test_what_a_task_raises_is_an_error_with_its_words(make_pool: MakePool, item: list[Any], detail: str) -> None:
    pool = make_pool(workers=1)
    before, failing, after = pool.run([["pid"], item, ["pid"]])
    assert (failing.value, failing.failure, failing.detail) == (None, "error", detail)
    assert before.value == after.value


@pytest.mark.parametrize(
    "value",
    [
        "",
        "null \0 byte",
        "lone \ud800 and \udfff",
        "\u202eright to left, \U0001f600",
        None,
        False,
        {"nested": [1, 2.5, {"deep": [None]}]},
        10**4000,
        "x" * 3_000_000,
        ["\udc00" * 100_000],
    ],
    ids=range(10),
)
def test_any_json_value_crosses_both_ways_unchanged(make_pool: MakePool, value: Any) -> None:
    outcomes = make_pool(workers=2).run([["echo", value]] * 5)
    assert [(outcome.value, outcome.failure) for outcome in outcomes] == [(value, None)] * 5


def test_a_task_may_recurse_deeper_than_python_allows_by_default(make_pool: MakePool) -> None:
    assert make_pool(workers=1).run([["levels_reached", 5000]])[0].value == 5000


def test_what_a_task_prints_goes_nowhere(make_pool: MakePool, capfd: pytest.CaptureFixture[str]) -> None:
    shouted, nowhere = make_pool(workers=1).run([["shout"], ["standard_files_lead_nowhere"]])
    assert (shouted.failure, nowhere.value) == (None, [True, True, True])
    assert capfd.readouterr() == ("", "")


def test_a_worker_has_the_standard_files_and_its_connection_open_and_nothing_else(make_pool: MakePool) -> None:
    outcomes = make_pool(workers=3).run([["nap", 0.1]] * 3 + [["open_descriptors"]] * 3)
    assert [len(outcome.value) for outcome in outcomes[3:]] == [4, 4, 4]


def test_the_terminal_of_the_caller_does_not_reach_workers(make_pool: MakePool) -> None:
    assert make_pool(workers=1).run([["session"]])[0].value != os.getsid(0)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGUSR1", "SIGHUP"])
def test_signals_that_go_to_a_whole_job_leave_workers_alone(make_pool: MakePool, name: str) -> None:
    assert make_pool(workers=1).run([["send_oneself", name]])[0].failure is None


def test_a_worker_whose_own_alarm_rings_was_late(make_pool: MakePool) -> None:
    assert make_pool(workers=1).run([["send_oneself", "SIGALRM"]])[0].failure == "timeout"


def test_the_alarm_of_a_worker_works_where_the_caller_ignores_and_blocks_alarms(make_pool: MakePool) -> None:
    previous = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    try:
        assert make_pool(workers=1).run([["alarm_state"]])[0].value == [True, False]
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
        signal.signal(signal.SIGALRM, previous)


def test_workers_that_crash_write_no_core_files(make_pool: MakePool) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    try:
        assert make_pool(workers=1).run([["core_limit"]])[0].value == 0
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


def test_texts_hash_alike_in_every_pool(make_pool: MakePool) -> None:
    hashes = {make_pool(workers=1).run([["hash_of", "x"]])[0].value for _ in range(3)}
    assert len(hashes) == 1


def test_progress_is_told_after_every_outcome(make_pool: MakePool) -> None:
    told: list[tuple[int, int]] = []
    items = [["echo"], ["leave", 1], ["fail", "ValueError", ""], ["echo"]]
    make_pool(workers=2).run(items, on_progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
