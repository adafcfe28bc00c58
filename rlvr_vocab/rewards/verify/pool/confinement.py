"""What a worker may use: memory, stack, signals. Set once in the template, inherited by every worker."""

from __future__ import annotations

import contextlib
import mmap
import resource
import signal
import sys
from pathlib import Path

RECURSION_LIMIT = 10_000
STACK_BYTES = 64 * 2**20  # RECURSION_LIMIT levels of `sorted(key=…)` take 16 MB, the usual 8 MB would crash
LEAST_ROOM = 32 * 2**20

# A terminal or a batch scheduler sends these to every process of a job; they are the caller's to answer.
_SIGNALS_FOR_THE_CALLER = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def confine(memory_limit: int) -> bool:
    """Set the limits of this process.

    Returns:
        Whether the system enforces the one on memory (macOS does not).

    Raises:
        MemoryError: the process is too large already.
    """
    _reset_signals()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _set_soft_limit(resource.RLIMIT_STACK, STACK_BYTES)
    sys.setrecursionlimit(RECURSION_LIMIT)
    _volunteer_for_the_oom_killer()
    _set_soft_limit(resource.RLIMIT_AS, memory_limit)
    if not _can_map(LEAST_ROOM):
        raise MemoryError(f"memory_limit={memory_limit} leaves no room beside the modules of the task")
    return not _can_map(memory_limit)


def _reset_signals() -> None:
    # A blocked or ignored signal stays so in the processes that one starts, the alarm of a hanging worker included.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for number in _SIGNALS_FOR_THE_CALLER:
        signal.signal(number, signal.SIG_IGN)


def _set_soft_limit(kind: int, size: int) -> None:
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (size if hard == resource.RLIM_INFINITY else min(size, hard), hard))


def _volunteer_for_the_oom_killer() -> None:
    """Where the machine runs out of memory, a worker is easier to replace than the run that it works for."""
    with contextlib.suppress(OSError):  # not Linux, or a container that forbids it: a wish, not a promise
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _can_map(size: int) -> bool:
    try:
        mmap.mmap(-1, size).close()
    except (OSError, ValueError):
        return False
    return True
