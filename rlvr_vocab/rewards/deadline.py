"""Calls with a deadline: they run in a daemon thread, which is abandoned where one does not return."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
# Whether the caller still waits; for the called function to ask.
StillWanted = Callable[[], bool]


class TimedOut(Exception):
    """A call was abandoned, or not begun. The message continues a sentence that begins with the function's name."""


class Deadline:
    """`seconds` from now on; None for no deadline."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._end = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float | None:
        """Seconds, not below 0; None for no deadline."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def missed(self) -> TimedOut:
        return TimedOut(f"had not returned by its deadline of {self.seconds:g} seconds")


class DeadlineThread:
    """One thread for all calls of a function, so that its thread-local state stays.

    A call has the context variables and the GPU of its caller; what it raises is raised there. While an abandoned call
    still runs, no other begins: a function that hangs costs one thread. It is a daemon, so that the program can end.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._one_caller = threading.Lock()
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ended: threading.Event | None = None
        self._begun = 0.0
        weakref.finalize(self, self._calls.put, None)

    def call(self, function: Callable[[StillWanted], T], deadline: Deadline) -> T:
        """What `function` returns or raises.

        Raises:
            TimedOut: it has not returned by the deadline, or an earlier call still runs.
        """
        with self._one_caller:
            if self._ended is not None and not self._ended.is_set():
                seconds = time.monotonic() - self._begun
                raise TimedOut(f"still hangs in a call that began {seconds:.0f} seconds ago and was not called again")
            if (left := deadline.left()) == 0:
                raise TimedOut(f"was not called after its deadline of {deadline.seconds:g} seconds")
            outcome: Future[T] = Future()
            context, gpu, ended = contextvars.copy_context(), _current_gpu(), threading.Event()

            def run() -> None:
                with suppress(InvalidStateError):  # nobody waits for it any more
                    try:
                        _use_gpu(gpu)
                        outcome.set_result(context.run(function, lambda: not outcome.cancelled()))
                    except BaseException as error:  # noqa: BLE001 - raised again in the thread of the caller
                        outcome.set_exception(error)
                    finally:
                        ended.set()

            self._begun, self._ended = time.monotonic(), ended
            if self._thread is None or not self._thread.is_alive():  # none has survived a fork
                self._thread = threading.Thread(target=_run_calls, args=(self._calls,), name=self._name, daemon=True)
                self._thread.start()
            self._calls.put(run)
            try:
                in_time = ended.wait(left)
            finally:  # an interruption by the user abandons the call, too
                outcome.cancel()
            if not in_time and outcome.cancelled():
                raise deadline.missed()
            return outcome.result()


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, also where an event loop runs in this thread already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def _run_calls(calls: SimpleQueue[Callable[[], None] | None]) -> None:
    while (call := calls.get()) is not None:
        call()
        del call  # with what it returned, while waiting for the next


def _current_gpu() -> int | None:
    """The GPU that "cuda" means in this thread, which a new thread takes for the first; rewards import no torch."""
    torch = sys.modules.get("torch")
    return torch.cuda.current_device() if torch is not None and torch.cuda.is_initialized() else None


def _use_gpu(index: int | None) -> None:
    if index is not None:
        sys.modules["torch"].cuda.set_device(index)
