"""A pool of processes for work on untrusted text: an item may hang, crash or eat memory, the caller goes on.

    caller ──items──▶ server ──forks──▶ worker, worker, …
           ◀outcomes─        ◀──────────┘

The server (`worker_server`) is one fresh, single-threaded interpreter that has imported the task. It forks a ready
worker in milliseconds, so a worker that is late or dead is cheap to replace. `multiprocessing` is no substitute:
forking the caller is unsafe once it runs threads or CUDA, and its other start methods run the caller's script again.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import IO, Any

from rlvr_vocab.verify.worker_server import Outcome, receive, send

MOST_WORKERS = 8
START_LIMIT = 120.0  # seconds: on a cluster's file system a first import may take half a minute
SILENCE_LIMIT = 30.0  # seconds past an item's deadline
STOP_LIMIT = 5.0
STARTS_BEFORE_GIVING_UP = 5

# sys.path comes first, or the imports of this very line would look into the working directory.
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from rlvr_vocab.verify.worker_server import main; main(int(sys.argv[1]), sys.argv[2])"
)
_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",  # the order of a set decides which form sympy finds: the same in every run
    "PYTHONWARNINGS": "ignore",  # nobody sees them, and as errors they would change verdicts
    "OMP_NUM_THREADS": "1",  # a library with threads of its own could not be forked
}

Progress = Callable[[int, int], object]


class WorkerPool:
    """Processes that apply a function to untrusted items. They start with the first `run`.

    `run` may be called from any thread, inside a running event loop and after `os.fork`; one batch is worked on at a
    time. It uses no signals, so those of the caller keep their handlers and alarms.

    Args:
        task: the function, as "module:function"; it takes a JSON value and returns one.
        workers: how many at most; by default as many as there are usable cores, up to eight.
        preload: functions to call before any item, outside all limits, as "module:function".

    Example:
        >>> pool = WorkerPool("math:sqrt")
        >>> [(outcome.value, outcome.detail) for outcome in pool.run([9, -1], deadline=2.0)]
        [(3.0, ''), (None, 'ValueError: math domain error')]
        >>> pool.close()
    """

    def __init__(self, task: str, *, workers: int | None = None, preload: Sequence[str] = ()) -> None:
        self._task = task
        self._settings = json.dumps([task, list(preload), workers or usable_cores()])
        self._servers: list[_Server] = []  # the one that runs, if any
        self._lock = threading.Lock()
        self._finalizer = weakref.finalize(self, _stop, self._servers)  # also when the interpreter ends
        self._is_closed = False
        _POOLS.add(self)

    def run(self, items: Sequence[Any], deadline: float, on_progress: Progress | None = None) -> list[Outcome]:
        """Apply the task to every item.

        Args:
            items: JSON values.
            deadline: seconds for an item, counted from when a worker gets it.
            on_progress: called in this thread after every outcome, with the number of outcomes and of items.

        Returns:
            One outcome per item, in their order.

        Raises:
            RuntimeError: the pool is closed, or its processes cannot be started.
        """
        outcomes: dict[int, Outcome] = {}
        losses = 0
        with self._lock:
            while len(outcomes) < len(items):
                before = len(outcomes)
                try:
                    self._finish(items, outcomes, deadline, on_progress)
                except _ServerLost as lost:
                    losses = losses + 1 if len(outcomes) == before else 1
                    if losses == STARTS_BEFORE_GIVING_UP:
                        words = f"were lost {losses} times in a row, the last time: {lost}"
                        raise RuntimeError(f"the worker processes for {self._task} {words}") from lost
        return [outcomes[place] for place in range(len(items))]

    def _finish(
        self, items: Sequence[Any], outcomes: dict[int, Outcome], deadline: float, on_progress: Progress | None
    ) -> None:
        """Have a server work on the items without an outcome."""
        try:
            if not self._finalizer.alive:
                raise RuntimeError("this pool of worker processes is closed")
            if not self._servers:
                self._servers.append(_Server(self._task, self._settings))
            places = [place for place in range(len(items)) if place not in outcomes]
            answers = self._servers[0].ask(deadline, [items[place] for place in places])
            for _ in places:
                place, *fields = next(answers)
                outcomes[places[place]] = Outcome(*fields)
                if on_progress:
                    on_progress(len(outcomes), len(items))
        except BaseException:  # an interruption too: what is still to come would be taken for answers to the next items
            _stop(self._servers)
            python_is_ending = not self._finalizer.alive and not self._is_closed
            if python_is_ending and threading.current_thread() is not threading.main_thread():
                threading.Event().wait()  # a daemon thread: it ends without a word
            raise

    def close(self) -> None:
        """End the processes, for good."""
        self._is_closed = True
        self._finalizer()


class _ServerLost(Exception):
    """The server was killed, or does not answer."""


class _Server:
    """A running server."""

    def __init__(self, task: str, settings: str) -> None:
        """Start one, and wait until it is ready.

        Raises:
            RuntimeError: it cannot start, or not in time.
            _ServerLost: it was killed.
        """
        self._control, theirs = socket.socketpair()
        with tempfile.TemporaryFile() as words, ExitStack() as on_failure:
            on_failure.callback(self._control.close)
            with theirs:
                self._process = _start(task, theirs.fileno(), settings, words)
            on_failure.callback(self.stop)
            self._wait_until_ready(task, words)
            on_failure.pop_all()

    def ask(self, deadline: float, items: list[Any]) -> Iterator[list[Any]]:
        """Send a batch; the answers as they come."""
        self._control.settimeout(deadline + SILENCE_LIMIT)
        try:
            send(self._control, [deadline, items])
            while (answer := receive(self._control)) is not None:
                yield answer
        except OSError as error:
            raise _ServerLost(str(error)) from error
        raise _ServerLost("it has closed its connection")

    def stop(self) -> None:
        """End the process, which takes its workers along unless it has to be killed."""
        self._control.close()
        try:
            self._process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def forget(self) -> None:
        """In a forked child: let go of what belongs to the parent, and leave it running."""
        self._control.close()
        self._process.returncode = 0  # no child of this process: its Popen would warn that it still runs

    def _wait_until_ready(self, task: str, words: IO[bytes]) -> None:
        self._control.settimeout(START_LIMIT)
        try:
            if receive(self._control) is not None:
                return
        except TimeoutError as error:
            raise RuntimeError(f"the worker processes for {task} did not start within {START_LIMIT:g} s") from error
        except ConnectionError:
            pass
        if self._process.wait(STOP_LIMIT) < 0:
            raise _ServerLost(f"killed by {signal.Signals(-self._process.returncode).name} while it started")
        words.seek(0)
        said = words.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
        raise RuntimeError(f"the worker processes for {task} cannot start: {said[-1]}")


def _start(task: str, control_fd: int, settings: str, words: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(control_fd), settings, *sys.path],
            pass_fds=[control_fd],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=words,
            env={**os.environ, **_ENVIRONMENT},
            start_new_session=True,  # Ctrl-C in the terminal is for the caller alone
        )
    except OSError as error:
        raise RuntimeError(f"the worker processes for {task} cannot start: {error}") from error


def _stop(servers: list[_Server]) -> None:
    while servers:
        servers.pop().stop()


def usable_cores() -> int:
    """The cores that this process may use, shared with the other ranks that a launcher started on this machine."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return min(MOST_WORKERS, max(1, cores // ranks))


_POOLS: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


def _forget_what_is_the_parents() -> None:
    for pool in _POOLS:
        pool._lock = threading.Lock()  # another thread of the parent may have held it
        while pool._servers:
            pool._servers.pop().forget()


os.register_at_fork(after_in_child=_forget_what_is_the_parents)
