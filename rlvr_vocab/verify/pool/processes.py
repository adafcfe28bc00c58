"""The caller's side of the two kinds of process: one template, and the workers forked from it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import IO, Any

from rlvr_vocab.verify.pool.wire import FORK, MEMORY_LIMITED, NUMBER, Settings, frame, whole_message

START_LIMIT = 120.0  # seconds: on a cluster's file system a first import may take half a minute
REPLY_LIMIT = 30.0
STOP_LIMIT = 5.0
RECEIVE_BYTES = 2**18
# To write to a dead process is an error to handle, not the signal that ends a caller who has SIGPIPE at its default.
_SEND_FLAGS = socket.MSG_NOSIGNAL if sys.platform == "linux" else 0

# sys.path comes first, or the imports of this very line would look into the working directory.
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from rlvr_vocab.verify.pool.template import main; main(int(sys.argv[1]), sys.argv[2])"
)
_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",  # the order of a set decides which form sympy finds: the same in every run
    "PYTHONWARNINGS": "ignore",  # nobody sees them, and as errors they would change verdicts
    "OMP_NUM_THREADS": "1",  # a library with threads of its own could not be forked
}


class TemplateLost(Exception):
    """The template was killed, or does not answer."""


class WorkerLost(Exception):
    """The worker has closed its connection: it is dead or dying."""


class Template:
    """A running template process. Not for two threads at once."""

    def __init__(self, settings: Settings) -> None:
        """Start one, and wait until it is ready.

        Raises:
            RuntimeError: it cannot start, or not in time.
            TemplateLost: it was killed.
        """
        self._in_step = False
        self._control, theirs = socket.socketpair()
        with tempfile.TemporaryFile() as words, ExitStack() as on_failure:
            on_failure.callback(self._control.close)
            with theirs:
                self._process = _start(theirs.fileno(), settings, words)
            on_failure.callback(self.stop)
            self.limits_memory = self._first_word(settings.task, words) == MEMORY_LIMITED
            on_failure.pop_all()
        self._control.settimeout(REPLY_LIMIT)
        self._in_step = True

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def fork(self, connection: socket.socket) -> int:
        """The id of a new worker that serves `connection`."""
        return self._ask(FORK, [connection.fileno()])

    def end(self, pid: int) -> int:
        """Kill a worker unless it has ended before; its wait status."""
        return self._ask(pid)

    def stop(self) -> None:
        """End the process, which takes its workers along unless it has to be killed."""
        self._in_step = False
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

    def _ask(self, order: int, fds: Sequence[int] = ()) -> int:
        if not self._in_step:
            raise TemplateLost("an earlier order was interrupted before its reply")
        self._in_step = False
        try:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))]
            self._control.sendmsg([NUMBER.pack(order)], rights if fds else [], _SEND_FLAGS)
            reply = self._control.recv(NUMBER.size)
        except OSError as error:
            raise TemplateLost(str(error)) from error
        if len(reply) < NUMBER.size:
            raise TemplateLost("it has closed its connection")
        self._in_step = True
        (number,) = NUMBER.unpack(reply)
        return number

    def _first_word(self, task: str, words: IO[bytes]) -> bytes:
        self._control.settimeout(START_LIMIT)
        try:
            word = self._control.recv(1)
        except TimeoutError as error:
            raise RuntimeError(f"the worker processes for {task} did not start within {START_LIMIT:g} s") from error
        except ConnectionError:
            word = b""
        if word:
            return word
        if self._process.wait(STOP_LIMIT) < 0:
            raise TemplateLost(f"killed by {signal.Signals(-self._process.returncode).name} while it started")
        words.seek(0)
        said = words.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
        raise RuntimeError(f"the worker processes for {task} cannot start: {said[-1]}")


def _start(control_fd: int, settings: Settings, words: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(control_fd), settings.as_text(), *sys.path],
            pass_fds=[control_fd],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=words,
            env={**os.environ, **_ENVIRONMENT},
            start_new_session=True,  # Ctrl-C in the terminal is for the caller alone
        )
    except OSError as error:
        raise RuntimeError(f"the worker processes for {settings.task} cannot start: {error}") from error


class Worker:
    """A worker process and the item that it works on, one at a time."""

    def __init__(self, template: Template) -> None:
        self.connection, theirs = socket.socketpair()
        with theirs, ExitStack() as on_failure:
            on_failure.callback(self.connection.close)
            self.pid = template.fork(theirs)
            on_failure.pop_all()
        self.template = template
        self.connection.setblocking(False)
        self._requests = 0
        self._outgoing = memoryview(b"")
        self._incoming = bytearray()

    @property
    def is_sending(self) -> bool:
        return bool(self._outgoing)

    @property
    def is_fresh(self) -> bool:
        """Has it had no item before the present one?"""
        return self._requests <= 1

    @property
    def memory_is_limited(self) -> bool:
        return self.template.limits_memory

    def resident_bytes(self) -> int:
        import psutil

        try:
            return psutil.Process(self.pid).memory_info().rss
        except psutil.NoSuchProcess:  # it has just died, as its connection is about to say
            return 0

    def is_at_rest(self) -> bool:
        """Alive, and with nothing to say, as one without an item should be."""
        return self._peek() is None

    def kill(self) -> None:
        """End an orphan, which has no template to do it."""
        if self._peek() != b"":  # while its connection is open the process lives, and its id is its own
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _peek(self) -> bytes | None:
        """What lies at the connection: None for nothing, empty once the process has ended."""
        try:
            return self.connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        except ConnectionError:
            return b""

    def give(self, item: Any) -> None:
        """Prepare an item; `exchange` sends it."""
        self._requests += 1
        self._outgoing = memoryview(frame([self._requests, item]))

    def exchange(self) -> tuple[Any, str | None, float] | None:
        """Send and receive what the connection takes and holds now.

        Returns:
            Value, error and milliseconds of the item given last; None while the answer is not complete.

        Raises:
            WorkerLost: the answer will never come.
            ValueError: what came is no answer to that item.
        """
        try:
            while self._outgoing:
                self._outgoing = self._outgoing[self.connection.send(self._outgoing, _SEND_FLAGS) :]
            received = self.connection.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return None
        except ConnectionError as error:
            raise WorkerLost from error
        if not received:
            raise WorkerLost
        self._incoming += received
        message = whole_message(self._incoming)
        if message is None:
            return None
        self._incoming.clear()
        match message:
            case [self._requests, value, str() | None as error_text, int() | float() as milliseconds]:
                return value, error_text, milliseconds
        raise ValueError(f"{str(message)[:60]} is not the answer to request {self._requests}")
