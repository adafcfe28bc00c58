"""What became of an item, and how a worker's end is read."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any, Literal

from rlvr_vocab.verify.pool.wire import Settings
from rlvr_vocab.verify.pool.worker import OUT_OF_MEMORY

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


@dataclass(frozen=True)
class Ending:
    """Why a worker ended in the middle of an item; `by_the_item` is False where it may not be the item's fault."""

    failure: Failure
    detail: str
    by_the_item: bool


GARBAGE = Ending("died", "the worker wrote something that is no answer", by_the_item=True)


def late(settings: Settings) -> Ending:
    return Ending("timeout", f"no answer within {settings.deadline:g} s", by_the_item=True)


def too_large(settings: Settings, worker_is_fresh: bool) -> Ending:
    detail = f"more than {settings.memory_limit / 1e6:.0f} MB of memory"
    return Ending("too large", detail, by_the_item=worker_is_fresh)  # else earlier items may have filled the memory


def ending(status: int | None, settings: Settings, worker_is_fresh: bool) -> Ending:
    """How to read the wait status of a worker that ended unasked; None where it went down with its template."""
    if status is None:
        return Ending("died", "the pool's processes were killed from outside", by_the_item=False)
    if os.WIFEXITED(status):
        code = os.WEXITSTATUS(status)
        if code == OUT_OF_MEMORY:
            return too_large(settings, worker_is_fresh)
        return Ending("died", f"the worker ended with exit code {code}", by_the_item=True)
    number = os.WTERMSIG(status)
    if number == signal.SIGALRM:  # the caller was stopped for so long that the worker's own alarm came first
        return late(settings)
    # Anybody's worker may be killed: by a person, or by the system when the machine runs out of memory.
    detail = f"the worker was ended by {signal.Signals(number).name}"
    return Ending("died", detail, by_the_item=number != signal.SIGKILL)
