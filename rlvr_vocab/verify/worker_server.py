"""The processes of a `worker_pool`: a server that hands out the items of a batch, and the workers that it forks."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

RECURSION_LIMIT = 10_000
STACK_BYTES = 64 * 2**20  # RECURSION_LIMIT levels of `sorted(key=…)` take 16 MB, the usual 8 MB would crash
# Bytes of address space for a worker, interpreter and modules included: below 1 GB with room to spare for what is
# resident but no address space of its own.
MEMORY_LIMIT = 900 * 2**20
OUT_OF_MEMORY = 77  # exit code
GRACE = 1.0  # seconds past the deadline after which a worker ends by itself
SEND_LIMIT = 5.0  # seconds for an item to go to a worker, which has nothing else to do than to receive it
LONGEST_DETAIL = 300
LONGEST_ANSWER = 64 * 2**20
RECEIVE_BYTES = 2**18

# A terminal or a batch scheduler sends these to every process of a job; they are the caller's to answer.
_SIGNALS_FOR_THE_CALLER = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
# To write to a dead process is an error to handle, not the signal that ends a caller who has SIGPIPE at its default.
_SEND_FLAGS = socket.MSG_NOSIGNAL if sys.platform == "linux" else 0
_LENGTH = struct.Struct("!I")

Task = Callable[[Any], Any]
Failure = Literal["timeout", "too large", "died", "error"]


@dataclass(frozen=True)
class Outcome:
    """What became of one item.

    Attributes:
        value: what the task returned; None where it failed.
        failure: "timeout", past the deadline; "too large", out of memory; "died", the worker crashed; "error", the
            task raised; None where it returned.
        detail: the failure in a few words.
        milliseconds: how long the item took.
    """

    value: Any
    failure: Failure | None
    detail: str
    milliseconds: float


def frame(message: Any) -> bytes:
    """A message with its length in front. JSON in ASCII also carries null bytes and lone surrogates."""
    body = json.dumps(message).encode("ascii")
    return _LENGTH.pack(len(body)) + body


def send(connection: socket.socket, message: Any) -> None:
    connection.sendall(frame(message), _SEND_FLAGS)


def receive(connection: socket.socket) -> Any | None:
    """The next message; None once the other side has closed."""
    head = _receive_bytes(connection, _LENGTH.size)
    body = _receive_bytes(connection, *_LENGTH.unpack(head)) if head else b""
    return json.loads(body) if body else None


def _receive_bytes(connection: socket.socket, size: int) -> bytes:
    """So many bytes; none once the other side has closed."""
    received = bytearray()
    while len(received) < size:
        more = connection.recv(min(RECEIVE_BYTES, size - len(received)))
        if not more:
            return b""
        received += more
    return bytes(received)


def main(control_fd: int, settings: str) -> NoReturn:
    """Serve the caller at the other end of `control_fd` until it closes, then take every worker along."""
    control = socket.socket(fileno=control_fd)
    task_name, preload, size = json.loads(settings)
    task = load(task_name)
    for name in preload:
        load(name)()
    _prepare()
    gc.collect()
    gc.freeze()  # a collection in a worker would write to, and so copy, every page that it shares with the server
    os.dup2(1, 2)  # stdout leads nowhere; stderr was for what goes wrong at the start
    send(control, "ready")
    server = _Server(control, task, size)
    try:
        while (request := receive(control)) is not None:
            server.run(*request)
    except ConnectionError:
        pass  # the caller has gone
    finally:
        server.end_all()
    os._exit(0)


def load(name: str) -> Callable[..., Any]:
    """The function called "module:function"."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def _prepare() -> None:
    """Set what workers inherit: limits, and signals as a fresh process has them but for those to the whole job."""
    # A blocked or ignored signal stays so in the processes that one starts, the alarm of a hanging worker included.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for number in _SIGNALS_FOR_THE_CALLER:
        signal.signal(number, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _set_soft_limit(resource.RLIMIT_STACK, STACK_BYTES)
    sys.setrecursionlimit(RECURSION_LIMIT)


def _set_soft_limit(kind: int, size: int) -> None:
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (size if hard == resource.RLIM_INFINITY else min(size, hard), hard))


@dataclass(eq=False)
class _Worker:
    """A worker process, and what has come of its answer."""

    pid: int
    connection: socket.socket
    requests: int = 0
    place: int = 0
    since: float = 0.0

    def __post_init__(self) -> None:
        self._received = bytearray()

    def give(self, place: int, item: Any, deadline: float) -> None:
        self.requests += 1
        self.place, self.since = place, time.monotonic()
        self._received.clear()
        self.connection.settimeout(SEND_LIMIT)
        send(self.connection, [self.requests, item, deadline])

    def answer(self) -> tuple[Any, str | None, float] | None:
        """Value, error and milliseconds; None while some of it is still to come. To be called where there is more.

        Raises:
            ConnectionError: the answer will never come.
            ValueError: what came is no answer to that item.
        """
        more = self.connection.recv(RECEIVE_BYTES)
        if not more:
            raise ConnectionResetError
        self._received += more
        if len(self._received) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._received)
        missing = _LENGTH.size + length - len(self._received)
        if missing > 0 and length <= LONGEST_ANSWER:
            return None
        message = json.loads(self._received[_LENGTH.size :].decode("ascii")) if missing == 0 else None
        match message:
            case [self.requests, value, str() | None as error, int() | float() as milliseconds]:
                return value, error, milliseconds
        raise ValueError("not the answer to the item")


class _Server:
    """The workers and the batch that they work on."""

    def __init__(self, control: socket.socket, task: Task, size: int) -> None:
        self._control = control
        self._task = task
        self._size = size
        self._resting: list[_Worker] = []
        self._at_work: dict[int, _Worker] = {}  # by the file number of the connection

    def run(self, deadline: float, items: list[Any]) -> None:
        """Send the caller `[place, value, failure, detail, milliseconds]` for each item, in whatever order.

        Raises:
            ConnectionError: the caller has gone.
        """
        self._deadline, self._waiting, self._tried_again = deadline, deque(range(len(items))), set[int]()
        while self._waiting or self._at_work:
            self._hand_out(items)
            for number in self._those_that_speak():
                self._attend(self._at_work[number])
            # After the answers: where this process was stopped for a while, they lie ready and count.
            latest = time.monotonic() - deadline
            for worker in [worker for worker in self._at_work.values() if worker.since <= latest]:
                self._lose(worker, self._late())

    def end_all(self) -> None:
        for worker in [*self._resting, *self._at_work.values()]:
            _end(worker)

    def _hand_out(self, items: list[Any]) -> None:
        while self._waiting and (self._resting or len(self._at_work) < self._size):
            worker = self._resting.pop() if self._resting else self._fork()
            place = self._waiting.popleft()
            try:
                worker.give(place, items[place], self._deadline)
            except OSError:  # it has died while it had nothing to do
                self._waiting.appendleft(place)
                _end(worker)
            else:
                self._at_work[worker.connection.fileno()] = worker

    def _those_that_speak(self) -> list[int]:
        """The file numbers of connections with something to read, at the latest when a deadline is over."""
        poll = select.poll()
        for number in (self._control.fileno(), *self._at_work):
            poll.register(number, select.POLLIN)
        first = min((worker.since for worker in self._at_work.values()), default=0.0)
        ready = [number for number, _ in poll.poll(1 + 1000 * max(0.0, first + self._deadline - time.monotonic()))]
        if self._control.fileno() in ready:  # it has nothing to say while it waits for a batch
            raise ConnectionResetError("the caller has gone")
        return ready

    def _attend(self, worker: _Worker) -> None:
        try:
            answer = worker.answer()
        except OSError:
            self._lose(worker)
        except (ValueError, RecursionError):
            self._lose(worker, ("died", "the worker wrote something that is no answer", True))
        else:
            if answer is not None:
                value, error, milliseconds = answer
                self._resting.append(self._at_work.pop(worker.connection.fileno()))
                send(self._control, [worker.place, value, "error" if error else None, error or "", milliseconds])

    def _lose(self, worker: _Worker, ending: tuple[Failure, str, bool] | None = None) -> None:
        """End a worker, or learn how it ended; its item is tried once more where the fault may not be its own."""
        del self._at_work[worker.connection.fileno()]
        status = _end(worker)
        failure, detail, by_the_item = ending or self._ending(status, worker)
        if not by_the_item and worker.place not in self._tried_again:
            self._tried_again.add(worker.place)
            self._waiting.appendleft(worker.place)
        else:
            milliseconds = 1000 * (time.monotonic() - worker.since)
            send(self._control, [worker.place, None, failure, detail, milliseconds])

    def _ending(self, status: int, worker: _Worker) -> tuple[Failure, str, bool]:
        """How a worker ended unasked, from its wait status, and whether that is certainly its item's doing."""
        if os.WIFEXITED(status):
            if os.WEXITSTATUS(status) == OUT_OF_MEMORY:
                detail = f"more than {MEMORY_LIMIT / 1e6:.0f} MB of memory"
                return "too large", detail, worker.requests == 1  # else earlier items may have filled the memory
            return "died", f"the worker ended with exit code {os.WEXITSTATUS(status)}", True
        number = os.WTERMSIG(status)
        if number == signal.SIGALRM:  # this process was stopped for so long that the worker's own alarm came first
            return self._late()
        # Anybody's worker may be killed: by a person, or by the system when the machine runs out of memory.
        return "died", f"the worker was ended by {signal.Signals(number).name}", number != signal.SIGKILL

    def _late(self) -> tuple[Failure, str, bool]:
        return "timeout", f"no answer within {self._deadline:g} s", True

    def _fork(self) -> _Worker:
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid:
            theirs.close()
            return _Worker(pid, ours)
        try:
            # Or the end of the server, or of another worker's connection, would not be seen while this one lives.
            for connection in [self._control, ours, *(other.connection for other in self._resting)]:
                connection.close()
            for other in self._at_work.values():
                other.connection.close()
            _confine()
            _work(theirs, self._task)
            os._exit(0)
        finally:
            os._exit(1)  # a worker never returns into the server's loop


def _end(worker: _Worker) -> int:
    """The wait status of a worker, killed unless it has ended before. Until it is waited for, its id stays its own."""
    worker.connection.close()
    os.kill(worker.pid, signal.SIGKILL)
    return os.waitpid(worker.pid, 0)[1]


def _confine() -> None:
    """Limit the memory of a worker, where the system does that (macOS does not)."""
    with contextlib.suppress(OSError):  # not Linux, or a container that forbids it: a wish, not a promise
        # Where the machine runs out of memory, a worker is easier to replace than the run that it works for.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    _set_soft_limit(resource.RLIMIT_AS, MEMORY_LIMIT)


def _work(connection: socket.socket, task: Task) -> None:
    """Answer `[number, item, deadline]` with `[number, value, error, milliseconds]` until the server closes."""
    while (request := receive(connection)) is not None:
        number, item, deadline = request
        # The server kills whoever is late. The alarm is for a server that was itself killed meanwhile.
        signal.setitimer(signal.ITIMER_REAL, deadline + GRACE)
        answer = _answer_to(number, item, task)
        signal.setitimer(signal.ITIMER_REAL, 0)
        connection.sendall(answer)


def _answer_to(number: int, item: Any, task: Task) -> bytes:
    started = time.perf_counter()

    def milliseconds() -> float:
        return 1000 * (time.perf_counter() - started)

    try:
        value = task(item)
        return frame([number, value, None, milliseconds()])
    except MemoryError:
        os._exit(OUT_OF_MEMORY)  # to say it in a message might need memory too
    except BaseException as error:  # noqa: BLE001 - whatever a task raises, `sys.exit` included, is its answer
        words = f"{type(error).__name__}: {' '.join(str(error).split())}"[:LONGEST_DETAIL]
        return frame([number, None, words, milliseconds()])
