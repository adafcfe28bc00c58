"""What runs in the template process: it imports the task, then forks a worker or ends one when the caller says so."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import socket
from collections.abc import Callable
from typing import Any, NoReturn

from rlvr_vocab.rewards.verify.pool.confinement import confine
from rlvr_vocab.rewards.verify.pool.wire import FORK, MEMORY_LIMITED, MEMORY_UNLIMITED, NUMBER, Settings
from rlvr_vocab.rewards.verify.pool.worker import Task, work


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
