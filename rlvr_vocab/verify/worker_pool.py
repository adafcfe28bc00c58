"""A pool of processes for work on untrusted text: an item may hang, crash or eat memory, the caller goes on.

A worker is a fresh interpreter that has imported the task. The caller and its workers exchange lines of JSON, so a text
that took over a worker can make the caller run nothing. `docs/LOG.md` says why this is not pebble's pool.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

MOST_WORKERS = 8
START_LIMIT = 120.0  # seconds: on a cluster's file system a first import may take half a minute
END_LIMIT = 2.0  # seconds for a process that has closed its connection to end by itself
SEND_LIMIT = 5.0  # seconds for an item to go to a worker, which has nothing else to do than to receive it
GRACE = 1.0  # seconds past the deadline after which a worker ends by itself

RECURSION_LIMIT = 10_000
STACK_BYTES = 64 * 2**20  # RECURSION_LIMIT levels of `sorted(key=…)` take 16 MB, the usual 8 MB would crash
# Bytes of address space for a worker, interpreter and modules included: below 1 GB with room to spare for what is
# resident but no address space of its own.
MEMORY_LIMIT = 900 * 2**20
OUT_OF_MEMORY = 77  # exit code
LONGEST_DETAIL = 300
LONGEST_ANSWER = 64 * 2**20

# sys.path comes first, or the imports of this very line would look into the working directory.
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from rlvr_vocab.verify.worker_pool import work; work(int(sys.argv[1]), sys.argv[2])"
)
_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",  # the order of a set decides which form sympy finds: the same in every run
    "PYTHONWARNINGS": "ignore",  # as errors they would change verdicts
    "OMP_NUM_THREADS": "1",  # there are as many workers as cores
}
# A terminal or a batch scheduler sends these to every process of a job; they are the caller's to answer.
_SIGNALS_FOR_THE_CALLER = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

Failure = Literal["timeout", "too large", "died", "error"]


@dataclass(frozen=True)
class Outcome:
    """The result of one item.

    Attributes:
        value: what the task returned; None where it failed.
        failure: "timeout", past the deadline; "too large", out of memory; "died", the worker crashed; "error", the
            task raised; None where it returned.
    """

    value: Any
    failure: Failure | None
    detail: str
    milliseconds: float


class WorkerPool:
    """Processes that apply a function to untrusted items. They start with the first `run` and end with the pool.

    `run` may be called from any thread, inside a running event loop and after `os.fork`, one batch at a time; it uses
    no signals. `task` is a "module:function" from a JSON value to one; `preload` names functions to call before any
    item, outside all limits; `workers` is by default the number of usable cores, up to eight.
    """

    def __init__(self, task: str, *, workers: int | None = None, preload: Sequence[str] = ()) -> None:
        self._task, self._preload, self._size = task, preload, workers or usable_cores()
        self._workers: list[_Worker] = []
        self._lock = threading.Lock()
        weakref.finalize(self, _end_all, self._workers)  # also when the interpreter ends
        _POOLS.add(self)

    def run(
        self, items: Sequence[Any], deadline: float, on_progress: Callable[[int, int], object] | None = None
    ) -> list[Outcome]:
        """Apply the task to every item, each for `deadline` seconds from when a worker gets it.

        Returns:
            One outcome per item, in their order. `on_progress` gets the numbers of outcomes and of items after each.

        Raises:
            RuntimeError: the processes cannot be started.
        """
        outcomes: dict[int, Outcome] = {}
        with self._lock:
            try:
                for place, outcome in self._outcomes(items, deadline):
                    outcomes[place] = outcome
                    if on_progress:
                        on_progress(len(outcomes), len(items))
            except BaseException:  # an interruption too: answers to come would be taken for answers to the next items
                _end_all(self._workers)
                raise
        return [outcomes[place] for place in range(len(items))]

    def _outcomes(self, items: Sequence[Any], deadline: float) -> Iterator[tuple[int, Outcome]]:
        """The place and the outcome of each item, in any order."""
        waiting, busy, retried = deque(range(len(items))), list[_Worker](), set[int]()
        for worker in [worker for worker in self._workers if worker.process.poll() is not None]:  # killed while idle
            worker.end()
            self._workers.remove(worker)
        while waiting or busy:
            while waiting and len(busy) < self._size:
                idle = [worker for worker in self._workers if worker not in busy]
                if not idle:
                    idle = [_Worker(self._task, self._preload)]
                    self._workers += idle
                busy.append(idle[0])
                place = waiting.popleft()
                idle[0].assign(place, items[place], deadline)
            poll = select.poll()
            for worker in busy:
                poll.register(worker.connection.fileno(), select.POLLIN)
            first = min(worker.until for worker in busy)
            readable = {number for number, _ in poll.poll(1 + 1000 * max(0.0, first - time.monotonic()))}
            for worker in list(busy):
                # First the answers: where this process was stopped for a while, they lie ready and count.
                outcome = worker.read() if worker.connection.fileno() in readable else None
                if outcome is None and worker.until <= time.monotonic():
                    outcome = worker.overdue()
                if outcome is None:
                    continue
                busy.remove(worker)
                if worker.has_ended:
                    self._workers.remove(worker)
                    while len(self._workers) <= self._size:  # one to spare, ready when the next is lost
                        self._workers.append(_Worker(self._task, self._preload))
                if worker.is_innocent and worker.place not in retried:
                    retried.add(worker.place)
                    waiting.appendleft(worker.place)
                elif not worker.is_ready:
                    raise RuntimeError(f"the worker processes for {self._task} cannot start: {outcome.detail}")
                else:
                    yield worker.place, outcome


class _Worker:
    """A worker process and its item. `is_innocent`: it ended, and perhaps not by the fault of its item."""

    def __init__(self, task: str, preload: Sequence[str]) -> None:
        self._task = task
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - it is read when the process could not start
        self.until = time.monotonic() + START_LIMIT  # then for the item
        self.is_ready = self.has_ended = self.is_innocent = False
        self._items, self._received = 0, bytearray()
        self.connection, theirs = socket.socketpair()
        self.connection.settimeout(SEND_LIMIT)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(theirs.fileno()), json.dumps([task, [*preload]]), *sys.path],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._output,
                env={**os.environ, **_ENVIRONMENT},
                start_new_session=True,  # Ctrl-C in the terminal is for the caller alone
            )

    def assign(self, place: int, item: Any, deadline: float) -> None:
        """Give it an item, which goes to the process when that is ready."""
        self.place, self._item, self._deadline = place, item, deadline
        if self.is_ready:
            self._send()

    def _send(self) -> None:
        self._items += 1
        self._received.clear()
        self.until = time.monotonic() + self._deadline
        with contextlib.suppress(OSError):  # it was killed while idle: `read` meets the end of the connection
            self.connection.sendall(_line([self._items, self._item, self._deadline]))

    def read(self) -> Outcome | None:
        """Read from the connection: the outcome of the item; None while it is still to come."""
        try:
            more = self.connection.recv(2**18)
        except ConnectionError:
            more = b""
        self._received += more
        if not more:
            return self._describe_exit()
        if not self._received.endswith(b"\n") and len(self._received) <= LONGEST_ANSWER:
            return None
        if not self.is_ready:
            self.is_ready = True
            self._send()
            return None
        with contextlib.suppress(ValueError, RecursionError):
            match json.loads(self._received):
                case [self._items, value, str() as error, float() as milliseconds]:
                    return Outcome(value, "error" if error else None, error, milliseconds)
        return self._reap("died", "the worker wrote something that is no answer")

    def overdue(self) -> Outcome:
        if not self.is_ready:
            raise RuntimeError(f"the worker processes for {self._task} did not start within {START_LIMIT:g} s")
        return self._reap("timeout", f"no answer within {self._deadline:g} s")

    def _describe_exit(self) -> Outcome:
        """The outcome of the item of a process that has ended unasked."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(END_LIMIT)
        self.process.kill()
        code = self.process.wait()
        if not self.is_ready and code >= 0:
            self._output.seek(0)
            last = self._output.read().decode(errors="replace").strip().rpartition("\n")[2]
            raise RuntimeError(f"the worker processes for {self._task} cannot start: {last or f'exit code {code}'}")
        if code == OUT_OF_MEMORY:
            self.is_innocent = self._items > 1  # earlier items may have filled the memory
            return self._reap("too large", f"more than {MEMORY_LIMIT / 1e6:.0f} MB of memory")
        if code == -signal.SIGALRM:  # the caller was stopped for so long that the worker's own alarm came first
            return self.overdue()
        if code >= 0:
            return self._reap("died", f"the worker ended with exit code {code}")
        # Any worker may be killed: by a person, or by the system when the machine runs out of memory.
        self.is_innocent = code == -signal.SIGKILL
        return self._reap("died", f"the worker was ended by {signal.Signals(-code).name}")

    def _reap(self, failure: Failure, detail: str) -> Outcome:
        self.end()
        return Outcome(None, failure, detail, 1000 * (time.monotonic() - self.until + self._deadline))

    def end(self) -> None:
        """Kill the process unless it has ended."""
        self.has_ended = True
        self.disconnect()
        self.process.kill()
        self.process.wait()

    def disconnect(self) -> None:
        self.connection.close()
        self._output.close()


def _end_all(workers: list[_Worker]) -> None:
    while workers:
        workers.pop().end()


def usable_cores() -> int:
    """The cores that this process may use, shared with the other ranks that a launcher started on this machine."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return min(MOST_WORKERS, max(1, cores // ranks))


_POOLS: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


def _reset_after_fork() -> None:
    """The workers stay the parent's, and so may the lock that another of its threads holds."""
    for pool in _POOLS:
        pool._lock = threading.Lock()
        for worker in pool._workers:
            worker.disconnect()
            worker.process.returncode = 0  # no child of this process: its Popen would warn that it still runs
        pool._workers.clear()


os.register_at_fork(after_in_child=_reset_after_fork)


def work(connection_fd: int, settings: str) -> None:
    """In a worker: answer `[number, item, deadline]` with `[number, value, error, milliseconds]`."""
    connection = socket.socket(fileno=connection_fd)
    task_name, preload = json.loads(settings)
    task = _load(task_name)
    for name in preload:
        _load(name)()
    _confine()
    os.dup2(1, 2)  # stdout leads nowhere; stderr was for what goes wrong at the start
    connection.sendall(_line("ready"))
    for line in connection.makefile("rb"):
        number, item, deadline = json.loads(line)
        # The caller kills a late worker. The alarm is for a caller that was itself killed meanwhile.
        signal.setitimer(signal.ITIMER_REAL, deadline + GRACE)
        answer = _answer(number, item, task)
        signal.setitimer(signal.ITIMER_REAL, 0)
        connection.sendall(answer)


def _load(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def _confine() -> None:
    """Set limits, and signals as a fresh process has them but for those to the whole job."""
    # A blocked or ignored signal stays so in the processes that one starts, the alarm of a hanging worker included.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for number in _SIGNALS_FOR_THE_CALLER:
        signal.signal(number, signal.SIG_IGN)
    sys.setrecursionlimit(RECURSION_LIMIT)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for kind, size in ((resource.RLIMIT_STACK, STACK_BYTES), (resource.RLIMIT_AS, MEMORY_LIMIT)):
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (size if hard == resource.RLIM_INFINITY else min(size, hard), hard))
    with contextlib.suppress(OSError):  # where the machine runs out of memory, a worker ends before the run does
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _answer(number: int, item: Any, task: Callable[[Any], Any]) -> bytes:
    started = time.perf_counter()
    try:
        value = task(item)
        return _line([number, value, "", 1000 * (time.perf_counter() - started)])
    except MemoryError:
        os._exit(OUT_OF_MEMORY)  # to say it in a message might need memory too
    except BaseException as error:  # noqa: BLE001 - all that a task raises, `sys.exit` included, is its answer
        detail = f"{type(error).__name__}: {' '.join(str(error).split())}"[:LONGEST_DETAIL]
        return _line([number, None, detail, 1000 * (time.perf_counter() - started)])


def _line(message: Any) -> bytes:
    """A message. JSON in ASCII also carries null bytes, line ends and lone surrogates."""
    return json.dumps(message).encode("ascii") + b"\n"
