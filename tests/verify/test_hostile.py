"""Hostile completions score 0 in time, wherever the reward is called from, and leave nothing broken behind."""

import asyncio
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from rlvr_vocab.rewards import accuracy
from rlvr_vocab.verify.verifier import DEADLINE_SECONDS

from .hostile import GOLDS, hostile_completions

PATIENCE = DEADLINE_SECONDS + 0.5
HOSTILE = hostile_completions()
ORDINARY = (
    (r"\boxed{1+x^2}", r"<think>\boxed{7}</think>\boxed{\sqrt{12}}", r"\boxed{41}"),
    ("x^2+1", r"2\sqrt{3}", "42"),
)

Scores = list[float | None]
Setting = Callable[[Callable[[], Scores]], Scores]


def in_main_thread(call: Callable[[], Scores]) -> Scores:
    return call()


def in_another_thread(call: Callable[[], Scores]) -> Scores:
    found: list[Scores] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    return found[0]


def in_an_event_loop(call: Callable[[], Scores]) -> Scores:
    async def within() -> Scores:
        return call()

    return asyncio.run(within())


@pytest.mark.parametrize(
    ("setting", "each"),
    [
        (in_main_thread, 9),
        (in_another_thread, 9),
        (in_an_event_loop, 9),
        pytest.param(in_main_thread, 1, marks=pytest.mark.slow),
    ],
)
def test_hostile_completions_score_0_in_time_and_ordinary_ones_as_before(setting: Setting, each: int) -> None:
    def ordinary() -> Scores:
        turns, golds = ORDINARY
        return accuracy(completions=list(turns), solution=list(golds))

    assert setting(ordinary) == [1.0, 1.0, 0.0]
    too_slow, rewarded = {}, {}
    for name, completion in HOSTILE[::each]:
        started = time.monotonic()
        scores = setting(lambda completion=completion: accuracy(completions=[completion] * 7, solution=list(GOLDS)))
        seconds = time.monotonic() - started
        if seconds > PATIENCE:
            too_slow[name] = seconds
        if scores != [0.0] * len(GOLDS):
            rewarded[name] = scores
    assert (too_slow, rewarded) == ({}, {})
    assert setting(ordinary) == [1.0, 1.0, 0.0]


@pytest.mark.slow
def test_a_batch_of_all_of_them_takes_no_worker_beyond_a_gigabyte() -> None:
    completions = [completion for _, completion in HOSTILE]
    for gold in ("42", "x^2+1"):
        assert accuracy(completions=completions, solution=[gold] * len(completions)) == [0.0] * len(completions)
    peaks = [peak_bytes(process.pid) for process in psutil.Process().children(recursive=True)]
    assert peaks
    assert max(peaks) < 1e9


def peak_bytes(pid: int) -> int:
    """The most memory that a living process ever held, where the system tells; else what it holds."""
    status = Path(f"/proc/{pid}/status")
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return 1024 * int(found[1]) if found else psutil.Process(pid).memory_info().rss


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no alarm")
def test_the_alarm_of_the_user_stays_set() -> None:
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: rung.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 60)
        accuracy(completions=[r"\boxed{9^{9^{9^9}}+x}", r"\boxed{1+x^2}"], solution=["x^2+1"] * 2)
        assert 0 < signal.setitimer(signal.ITIMER_REAL, 0)[0] < 60
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert rung == []
