"""The pool as its users see it: `run` takes items and returns outcomes, whatever the items do to the workers."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Sequence
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.verify.pool.batch import Batch, Progress
from rlvr_vocab.verify.pool.crew import Crew
from rlvr_vocab.verify.pool.outcome import Outcome
from rlvr_vocab.verify.pool.wire import Settings

MOST_WORKERS = 8
DEADLINE_SECONDS = 2.0
# Below 1 GB with room to spare for what is resident but no address space of the worker's own.
MEMORY_LIMIT_BYTES = 900 * 2**20


class WorkerPool:
    """Processes that apply a function to untrusted items. They start with the first `run`.

    `run` may be called from any thread, from several at once, inside a running event loop and after `os.fork`. It
    uses no signals, so those of the caller keep their handlers and alarms.

    Args:
        task: the function, as "module:function"; it takes a JSON value and returns one.
        workers: how many processes at most, plus one for each further thread that calls `run` meanwhile; by default
            as many as there are usable cores, up to eight.
        deadline: seconds for an item, counted from when a worker gets it.
        memory_limit: bytes for a worker, the interpreter and the modules of the task included.
        preload: what to do before any item, outside all limits: "module" is imported, "module:function" is called.

    Example:
        >>> pool = WorkerPool("math:sqrt")
        >>> [(outcome.value, outcome.detail) for outcome in pool.run([9, -1])]
        [(3.0, ''), (None, 'ValueError: math domain error')]
        >>> pool.close()
    """

    def __init__(
        self,
        task: str,
        *,
        workers: int | None = None,
        deadline: float = DEADLINE_SECONDS,
        memory_limit: int = MEMORY_LIMIT_BYTES,
        preload: Sequence[str] = (),
    ) -> None:
        if workers is not None and workers < 1:
            raise UserError(f"workers={workers} for {task}: a pool needs at least one")
        if deadline <= 0:
            raise UserError(f"deadline={deadline} for {task}: give the seconds that an item may take")
        self._crew = Crew(Settings(task, tuple(preload), deadline, memory_limit), workers or _usable_cores())
        self._finalizer = weakref.finalize(self, self._crew.close)  # also when the interpreter ends

    def run(self, items: Sequence[Any], on_progress: Progress | None = None) -> list[Outcome]:
        """Apply the task to every item.

        Args:
            items: JSON values.
            on_progress: called in this thread after every outcome, with the number of outcomes and of items.

        Returns:
            One outcome per item, in their order.

        Raises:
            RuntimeError: the pool is closed, or its processes cannot be started.
        """
        batch = Batch(items, self._crew, on_progress)
        try:
            return batch.finish()
        finally:
            batch.release()

    def close(self) -> None:
        """End the processes, for good."""
        self._finalizer()


def _usable_cores() -> int:
    """The cores that this process may use, shared with the other ranks that a launcher started on this machine."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return min(MOST_WORKERS, max(1, cores // ranks))


_SHARED: dict[tuple[str, float, tuple[str, ...]], WorkerPool] = {}


def shared_pool(task: str, *, deadline: float = DEADLINE_SECONDS, preload: Sequence[str] = ()) -> WorkerPool:
    """The one pool of this process for a task, a deadline and a preload; it ends with the interpreter."""
    key = (task, deadline, tuple(preload))
    # No lock: setdefault is atomic, and a pool that loses the race has started nothing.
    return _SHARED.get(key) or _SHARED.setdefault(key, WorkerPool(task, deadline=deadline, preload=preload))
