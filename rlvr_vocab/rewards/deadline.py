"""Calls that must come back in time: they run in a daemon thread, which is left behind where one does not."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
# Whether anybody still waits for a call; asked from inside it.
StillWanted = Callable[[], bool]


class TimedOut(Exception):
    """A call was given up, or not begun. The message goes on from the name of a function."""


class Deadline:
    """When calls made now must have come back.

    Attributes:
        seconds: from now on; None for no deadline.
    """

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._end = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float | None:
        """Seconds, not below 0; None for no deadline."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def missed(self) -> TimedOut:
        return TimedOut(f"had not returned by its deadline of {self.seconds:g} seconds")

    def over(self) -> TimedOut:
        return TimedOut(f"was not called after its deadline of {self.seconds:g} seconds")


class DeadlineThread:
    """One thread for all calls of a function, so that what it keeps for a thread stays.

    A call sees the context variables and the GPU of the thread that it is made for; what it raises is raised there.
    As long as one that was given up still runs, no other is begun: a function that hangs costs one thread. The thread
    holds up nothing when the program ends.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._one_caller = threading.Lock()
        self._jobs: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._call: _Call | None = None
        weakref.finalize(self, self._jobs.put, None)

    def call(self, function: Callable[[StillWanted], T], deadline: Deadline) -> T:
        """What `function` returns or raises.

        Raises:
            TimedOut: it has not returned by the deadline, or an earlier call still runs.
        """
        with self._one_caller:
            if self._call is not None and not self._call.ended.is_set():
                seconds = time.monotonic() - self._call.begun
                raise TimedOut(f"still hangs in a call that began {seconds:.0f} seconds ago and was not called again")
            left = deadline.left()
            if left == 0:
                raise deadline.over()
            call = self._call = _Call(function)
            self._begin(call)
            try:
                in_time = call.ended.wait(left)
            finally:  # an interruption of the user, too, leaves it behind
                call.wanted = False
            if not in_time:
                raise deadline.missed()
            self._call = None
            return call.result()

    def _begin(self, call: _Call) -> None:
        if self._thread is None or not self._thread.is_alive():  # none has survived a fork
            self._thread = threading.Thread(target=_run_calls, args=(self._jobs,), name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put(call)


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, also where an event loop runs in this thread already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


class _Call:
    """One call: what it shall see, and what came of it."""

    def __init__(self, function: Callable[[StillWanted], Any]) -> None:
        self.begun = time.monotonic()
        self.ended = threading.Event()
        self.wanted = True
        self._function = function
        self._context = contextvars.copy_context()
        self._gpu = _current_gpu()
        self._value: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            _use_gpu(self._gpu)
            self._value = self._context.run(self._function, lambda: self.wanted)
        except BaseException as error:  # noqa: BLE001 - raised again by `result`, in the thread of the caller
            self._error = error
        finally:
            self.ended.set()

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value


def _run_calls(jobs: SimpleQueue[_Call | None]) -> None:
    while (call := jobs.get()) is not None:
        call.run()
        del call  # with what it returned, while waiting for the next


def _current_gpu() -> int | None:
    """The GPU that "cuda" means in this thread, which a new thread takes for the first; rewards import no torch."""
    torch = sys.modules.get("torch")
    return torch.cuda.current_device() if torch is not None and torch.cuda.is_initialized() else None


def _use_gpu(index: int | None) -> None:
    if index is not None:
        sys.modules["torch"].cuda.set_device(index)
