"""Hostile completions score 0 in time, and leave nothing broken behind."""

import re
import time
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


@pytest.mark.parametrize("each", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_hostile_completions_score_0_in_time_and_ordinary_ones_as_before(each: int) -> None:
    def ordinary() -> list[float | None]:
        turns, golds = ORDINARY
        return accuracy(completions=list(turns), solution=list(golds))

    assert ordinary() == [1.0, 1.0, 0.0]
    too_slow, rewarded = {}, {}
    for name, completion in HOSTILE[::each]:
        started = time.monotonic()
        scores = accuracy(completions=[completion] * 7, solution=list(GOLDS))
        seconds = time.monotonic() - started
        if seconds > PATIENCE:
            too_slow[name] = seconds
        if scores != [0.0] * len(GOLDS):
            rewarded[name] = scores
    assert (too_slow, rewarded) == ({}, {})
    assert ordinary() == [1.0, 1.0, 0.0]


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
