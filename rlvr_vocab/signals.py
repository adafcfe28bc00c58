"""The signals at which a run ends in good order."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rlvr_vocab.errors import Interrupted, OutOfRoom

# A launcher passes on what its processes have received themselves: so soon after the first it is the same one.
_PASSED_ON_WITHIN = 3.0  # seconds
STARTED_BY_MULTIRUN = "RLVR_VOCAB_MULTIRUN"
_LAUNCHED = ("TORCHELASTIC_RUN_ID", STARTED_BY_MULTIRUN)
# What a person, a scheduler, and SLURM's warning before the time limit send.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


def _nothing() -> None:
    pass


class StopSignals:
    """The signal that a process received.

    reason: its name, such as `SIGTERM`; None as long as the run goes on.
    defer_signals: a step is under way, a signal is only noted; else it raises `Interrupted` at once.
    at_once: called before a second signal ends the process: a terminal gets its cursor back.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self.defer_signals = False
        self.at_once: Callable[[], None] = _nothing
        self._process = os.getpid()
        self._first = 0.0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Inside the block signals stop the run in good order; a second one ends the process at once.

        Raises:
            Interrupted: for a signal, also where a library has made something else of it on its way here.
        """
        self.reason, self.defer_signals, self._process = None, False, os.getpid()
        before = {number: signal.signal(number, self._received) for number in STOP_SIGNALS}
        try:
            yield
        except (Interrupted, OutOfRoom):
            raise
        except BaseException as error:
            if self.defer_signals or self.reason is None:
                raise
            raise Interrupted(f"by {self.reason} ({type(error).__name__}: {error})") from error
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def require_going_on(self) -> None:
        """Between two pieces of work: go no further once the run is to stop.

        Raises:
            Interrupted: it is.
        """
        if self.reason is not None:
            raise Interrupted(f"by {self.reason}; the same command goes on")

    def _received(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a child that was forked with this handler: its parent decides
            return
        if self.reason is not None:
            launched = any(name in os.environ for name in _LAUNCHED)
            if launched and time.monotonic() - self._first < _PASSED_ON_WITHIN:
                return
            try:
                self.at_once()
            finally:
                os._exit(128 + number)
        self.reason, self._first = signal.Signals(number).name, time.monotonic()
        if not self.defer_signals:
            raise Interrupted(f"by {self.reason}, outside of a step; the same command goes on")


# Signals are the process's own: there is one of these.
stop_signals = StopSignals()


@contextmanager
def block_signals_in_children() -> Iterator[None]:
    """Processes that are started inside the block do not receive the signals that a run finishes its step at.

    A terminal and SLURM send them to a whole family of processes. What is blocked here stays blocked in the children,
    and reaches this process when the block ends.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGUSR1))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
