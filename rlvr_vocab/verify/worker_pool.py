"""A pool of processes for untrusted text: an item may hang, crash or exhaust memory without harm to the caller.

A worker is a fresh interpreter that has imported the task. Caller and workers exchange lines of JSON, so a compromised
worker cannot make the caller run code. `docs/LOG.md` explains why this is not pebble's pool.
"""

from __future__ import annotations

import contextlib
import json
import os
import pkgutil
import resource
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

MOST_WORKERS = 8
START_LIMIT = 120.0  # seconds: on a cluster's file system a first import may take half a minute
GRACE = 1.0  # seconds after the deadline until a worker ends by itself; also the wait for a process to end

RECURSION_LIMIT = 10_000
STACK_BYTES = 64 * 2**20  # RECURSION_LIMIT levels of `sorted(key=…)` take 16 MB, the usual 8 MB would crash
# Bytes of address space for a worker, interpreter and modules included: well below 1 GB, as some resident memory is not
# counted as its address space.
MEMORY_LIMIT = 900 * 2**20
OUT_OF_MEMORY = 77  # exit code
LONGEST_DETAIL = 300
LONGEST_ANSWER = 64 * 2**20

# sys.path is set first; otherwise the imports of this line would search the working directory.
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[4:]; from rlvr_vocab.verify.worker_pool import work; work(*sys.argv[1:4])"
)
_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",  # the order of a set decides which form sympy finds: the same in every run
    "PYTHONWARNINGS": "ignore",  # as errors they would change verdicts
    "OMP_NUM_THREADS": "1",  # there are as many workers as cores
}
# A terminal or a batch scheduler sends these to every process of a job; only the caller handles them.
_SIGNALS_FOR_THE_CALLER = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

Failure = Literal["timeout", "too large", "died", "error"]


@dataclass(frozen=True)
class Outcome:
    """The value that the task returned for an item, or its failure.

    "timeout": past the deadline; "too large": out of memory; "died": the worker crashed; "error": the task raised.
    """

    value: Any
    failure: Failure | None
    detail: str


class WorkerPool:
    """Processes that apply a function to untrusted items. They start with the first `run` and end with the pool.

    `run` may be called from any thread, inside a running event loop and after `os.fork`, one batch at a time. `task` is
    a "module:function" that maps a JSON value to another. `preload` names a function that is called before any item,
    without limits. `workers` is by default the number of usable cores, up to eight.
    """

    def __init__(self, task: str, *, workers: int | None = None, preload: str = "") -> None:
        self._task, self._preload, self._size = task, preload, workers or usable_cores()
        self._idle, self._busy = deque[_Worker](), set[_Worker]()
        self._lock, self._is_stopped = threading.Lock(), False
        weakref.finalize(self, _end_all, self._idle)  # also when the interpreter ends
        _POOLS.add(self)

    def run(
        self, items: Sequence[Any], deadline: float, on_progress: Callable[[int, int], object] | None = None
    ) -> list[Outcome]:
        """Apply the task to each item for `deadline` seconds from when a worker gets it; outcomes are in item order.

        `on_progress` gets the numbers of outcomes and of items after each. Raises RuntimeError if no process starts.
        """
        with self._lock, ThreadPoolExecutor(self._size) as threads:
            self._is_stopped = False
            for worker in [worker for worker in self._idle if worker.process.poll() is not None]:  # it was killed
                worker.end()
                self._idle.remove(worker)
            try:
                futures = [threads.submit(self._outcome, item, deadline) for item in items]
                for count, future in enumerate(as_completed(futures), 1):
                    future.result()
                    if on_progress:
                        on_progress(count, len(items))
            except BaseException:  # also for an interrupt: no worker continues with an item whose caller is gone
                self._is_stopped = True
                threads.shutdown(wait=False, cancel_futures=True)
                for worker in list(self._busy):
                    worker.process.kill()
                raise
            return [future.result() for future in futures]

    def _outcome(self, item: Any, deadline: float) -> Outcome:
        """The outcome of an item; from a second, fresh worker where the first ended by no fault of the item."""
        try:
            worker = self._idle.pop()
        except IndexError:
            worker = _Worker(self._task, self._preload)
        outcome = self._ask(worker, item, deadline)
        if worker.is_blameless and not self._is_stopped:
            worker = _Worker(self._task, self._preload)
            outcome = self._ask(worker, item, deadline)
        if not worker.is_ready:
            raise RuntimeError(f"the worker processes for {self._task} cannot start: {outcome.detail}")
        return outcome

    def _ask(self, worker: _Worker, item: Any, deadline: float) -> Outcome:
        self._busy.add(worker)
        outcome = worker.ask(item, deadline)
        self._busy.remove(worker)
        if worker.process.returncode is None:
            self._idle.append(worker)
        return outcome


class _Worker:
    """A worker process. `is_blameless`: it ended, and perhaps by no fault of its last item."""

    def __init__(self, task: str, preload: str) -> None:
        self.is_ready = self.is_blameless = False
        self._num_asked = 0
        self._connection, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(theirs.fileno()), task, preload, *sys.path],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, **_ENVIRONMENT},
                start_new_session=True,  # Ctrl-C in the terminal reaches only the caller
            )

    def ask(self, item: Any, deadline: float) -> Outcome:
        """The outcome of an item; any failure except "error" ends the process."""
        try:
            if not self.is_ready:
                self._receive(START_LIMIT)
                self.is_ready = True
            self._num_asked += 1
            with contextlib.suppress(OSError):  # it was just killed: `_receive` reads the end of the connection
                self._connection.settimeout(deadline)
                self._connection.sendall(_line([self._num_asked, item, deadline]))
            outcome = self._outcome(self._receive(deadline))
        except TimeoutError:
            seconds = deadline if self.is_ready else START_LIMIT
            outcome = Outcome(None, "timeout", f"no answer within {seconds:g} s")
        except EOFError:
            outcome = self._describe_exit()
        if outcome.failure not in (None, "error"):
            self.end()
        return outcome

    def _receive(self, seconds: float) -> bytes:
        """A line from the process; raises TimeoutError, or EOFError if the process ends or writes no line."""
        self._connection.settimeout(seconds)
        received = bytearray()
        while not received.endswith(b"\n"):
            more = b""
            with contextlib.suppress(ConnectionError):
                more = self._connection.recv(2**18)
            if not more or len(received) > LONGEST_ANSWER:
                raise EOFError
            received += more
        return bytes(received)

    def _outcome(self, answer: bytes) -> Outcome:
        with contextlib.suppress(ValueError, RecursionError):
            match json.loads(answer):
                case [self._num_asked, value, str() as error]:
                    return Outcome(value, "error" if error else None, error)
        return Outcome(None, "died", "the worker wrote an invalid answer")

    def _describe_exit(self) -> Outcome:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE)
        self.process.kill()
        code = self.process.wait()
        if code == OUT_OF_MEMORY:
            self.is_blameless = self._num_asked > 1  # earlier items may have filled the memory
            return Outcome(None, "too large", f"more than {MEMORY_LIMIT / 1e6:.0f} MB of memory")
        self.is_blameless = code == -signal.SIGKILL  # a person or a full machine may kill any worker
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return Outcome(None, "died", f"the worker {how}")

    def end(self) -> None:
        """Kill the process unless it has ended."""
        self._connection.close()
        self.process.kill()
        self.process.wait()


def _end_all(workers: deque[_Worker]) -> None:
    while workers:
        workers.pop().end()


def usable_cores() -> int:
    """The cores that this process may use, shared with the other ranks that a launcher started on this machine."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return min(MOST_WORKERS, max(1, cores // ranks))


_POOLS: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


def _reset_after_fork() -> None:
    """Drop the workers, which belong to the parent, and the lock, which another of its threads may hold."""
    for pool in _POOLS:
        pool._lock = threading.Lock()
        for worker in {*pool._idle, *pool._busy}:
            worker.process.returncode = 0  # not a child of this process, which must neither kill nor await it
            worker.end()
        pool._idle.clear()
        pool._busy.clear()


os.register_at_fork(after_in_child=_reset_after_fork)


def work(connection_fd: str, task_name: str, preload: str) -> None:
    """In a worker: answer `[number, item, deadline]` with `[number, value, error]`."""
    connection = socket.socket(fileno=int(connection_fd))
    task = pkgutil.resolve_name(task_name)
    if preload:
        pkgutil.resolve_name(preload)()
    _confine()
    os.dup2(1, 2)  # stdout leads nowhere; stderr shows why a start fails
    connection.sendall(_line("ready"))
    for line in connection.makefile("rb"):
        number, item, deadline = json.loads(line)
        # The caller kills a late worker. The alarm is for a caller that was itself killed meanwhile.
        signal.setitimer(signal.ITIMER_REAL, deadline + GRACE)
        try:
            answer = _line([number, task(item), ""])
        except MemoryError:
            os._exit(OUT_OF_MEMORY)  # a message might need memory
        except BaseException as error:  # noqa: BLE001 - any exception of a task, `sys.exit` included, is returned
            answer = _line([number, None, describe(error)])
        signal.setitimer(signal.ITIMER_REAL, 0)
        connection.sendall(answer)


def describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:LONGEST_DETAIL]


def _confine() -> None:
    """Set limits, and reset signals to their defaults, except those sent to the whole job."""
    # Child processes inherit blocked and ignored signals, including the alarm that ends a hanging worker.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for number in _SIGNALS_FOR_THE_CALLER:
        signal.signal(number, signal.SIG_IGN)
    sys.setrecursionlimit(RECURSION_LIMIT)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for kind, size in ((resource.RLIMIT_STACK, STACK_BYTES), (resource.RLIMIT_AS, MEMORY_LIMIT)):
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (size if hard == resource.RLIM_INFINITY else min(size, hard), hard))
    with contextlib.suppress(OSError):  # if the machine runs out of memory, the kernel kills a worker before the run
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _line(message: Any) -> bytes:
    """Encode a message. JSON in ASCII can represent null bytes, line ends and lone surrogates."""
    return json.dumps(message).encode("ascii") + b"\n"
