"""What runs in a worker process: one item after the other, each answered with a value or an error."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from rlvr_vocab.verify.pool.wire import frame, read_message

OUT_OF_MEMORY = 77  # exit code
GRACE = 1.0  # seconds past the deadline after which a worker ends by itself
LONGEST_DETAIL = 300

Task = Callable[[Any], Any]


def work(connection: socket.socket, task: Task, deadline: float) -> None:
    """Answer `[number, item]` with `[number, value, error, milliseconds]` until the caller closes the connection."""
    stream = connection.makefile("rb")
    while (request := read_message(stream)) is not None:
        # The caller kills whoever is late. The alarm is for a caller that was itself killed meanwhile.
        signal.setitimer(signal.ITIMER_REAL, deadline + GRACE)
        answer = answer_to(request, task)
        signal.setitimer(signal.ITIMER_REAL, 0)
        connection.sendall(answer)


def answer_to(request: list[Any], task: Task) -> bytes:
    number, item = request
    started = time.perf_counter()
    try:
        value = task(item)
        return frame([number, value, None, _milliseconds_since(started)])
    except MemoryError:
        os._exit(OUT_OF_MEMORY)  # to say it in a message might need memory too
    except BaseException as error:  # noqa: BLE001 - whatever a task raises, `sys.exit` included, is its answer
        return frame([number, None, _in_one_line(error), _milliseconds_since(started)])


def _milliseconds_since(started: float) -> float:
    return 1000 * (time.perf_counter() - started)


def _in_one_line(error: BaseException) -> str:
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}"[:LONGEST_DETAIL]
