"""What runs in the template process: it imports the task, then forks a worker or ends one when the caller says so."""

from __future__ import annotations

import contextlib
import gc
import importlib
import mmap
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from rlvr_vocab.verify.pool.wire import FORK, MEMORY_LIMITED, MEMORY_UNLIMITED, NUMBER, Settings
from rlvr_vocab.verify.pool.worker import Task, work


def main(control_fd: int, settings_text: str) -> NoReturn:
    """Serve the caller at the other end of `control_fd` until it closes, then take every worker along."""
    control = socket.socket(fileno=control_fd)
    settings = Settings.from_text(settings_text)
    task = load(settings.task)
    for name in settings.preload:
        if ":" in name:
            load(name)()
        else:
            importlib.import_module(name)
    memory_is_limited = confine(settings.memory_limit)
    gc.collect()
    gc.freeze()  # a collection in a worker would write to, and so copy, every page that it shares with the template
    os.dup2(1, 2)  # stdout leads nowhere; stderr was for what goes wrong at the start
    control.sendall(MEMORY_LIMITED if memory_is_limited else MEMORY_UNLIMITED)
    _serve(control, task, settings.deadline)
    os._exit(0)


def load(name: str) -> Callable[..., Any]:
    """The function called "module:function"."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def _serve(control: socket.socket, task: Task, deadline: float) -> None:
    workers: set[int] = set()
    try:
        while True:
            order, fds, _, _ = socket.recv_fds(control, NUMBER.size, 1)
            if not order:
                return
            (pid,) = NUMBER.unpack(order)
            if pid == FORK:
                reply = _fork(socket.socket(fileno=fds[0]), control, task, deadline)
                workers.add(reply)
            else:
                workers.remove(pid)
                reply = _end(pid)
            control.sendall(NUMBER.pack(reply))
    finally:
        for pid in workers:
            _end(pid)


def _fork(connection: socket.socket, control: socket.socket, task: Task, deadline: float) -> int:
    """The id of a new worker."""
    pid = os.fork()
    if pid:
        connection.close()
        return pid
    try:
        control.close()  # or the template's end would not be seen while the worker lives
        work(connection, task, deadline)
        os._exit(0)
    finally:
        os._exit(1)  # a worker never returns into the template's loop


def _end(pid: int) -> int:
    """The wait status of a worker, killed unless it has ended before. Until it is waited for, its id stays its own."""
    os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


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
