"""One call of `WorkerPool.run`: hands out the items, collects the answers, ends whoever is late or swollen."""

from __future__ import annotations

import selectors
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from rlvr_vocab.verify.pool.crew import Crew
from rlvr_vocab.verify.pool.outcome import GARBAGE, Ending, Outcome, ending, late, too_large
from rlvr_vocab.verify.pool.processes import Worker, WorkerLost

MEMORY_POLL_SECONDS = 0.05

Progress = Callable[[int, int], object]


class Batch:
    """Items on their way through the workers of a crew."""

    def __init__(self, items: Sequence[Any], crew: Crew, on_progress: Progress | None) -> None:
        self._items = items
        self._crew = crew
        self._settings = crew.settings
        self._on_progress = on_progress
        self._waiting = deque(range(len(items)))
        self._tried_again: set[int] = set()
        self._outcomes: dict[int, Outcome] = {}
        self._at_work: dict[Worker, tuple[int, float]] = {}  # the item's place, and when it was given
        self._free: list[Worker] = []
        self._selector = selectors.PollSelector()  # unlike epoll it has no descriptor for a fork to copy
        self._next_look_at_memory = 0.0

    def finish(self) -> list[Outcome]:
        """All outcomes, in the order of the items."""
        while len(self._outcomes) < len(self._items):
            self._hand_out()
            for key, _ in self._selector.select(self._patience()):
                self._attend(key.data)
            # After the answers: where the caller was stopped for a while, they lie ready and count.
            self._end_late_workers()
            self._end_swollen_workers()
        return [self._outcomes[place] for place in range(len(self._items))]

    def release(self) -> None:
        """Give up the workers. One that still holds an item is ended: its answer would be taken for a later item's."""
        while self._at_work:
            self._crew.end(self._at_work.popitem()[0])
        while self._free:
            self._crew.give_back(self._free.pop())

    def _hand_out(self) -> None:
        while self._waiting and (worker := self._free.pop() if self._free else self._borrow()):
            place = self._waiting.popleft()
            self._at_work[worker] = (place, time.monotonic())
            worker.give(self._items[place])
            self._attend(worker)
        while self._free:  # other threads may have a use for them
            worker = self._free.pop()
            self._selector.unregister(worker.connection)
            self._crew.give_back(worker)

    def _borrow(self) -> Worker | None:
        worker = self._crew.borrow(is_first=not self._at_work)
        if worker:
            self._selector.register(worker.connection, selectors.EVENT_READ, worker)
        return worker

    def _attend(self, worker: Worker) -> None:
        """Send and receive what can be sent and received now, and act on it."""
        try:
            answer = worker.exchange()
        except WorkerLost:
            self._lose(worker)
        except (ValueError, RecursionError):
            self._lose(worker, GARBAGE)
        else:
            self._watch(worker)
            if answer:
                self._take(worker, *answer)

    def _watch(self, worker: Worker) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.is_sending else 0)
        if self._selector.get_key(worker.connection).events != events:
            self._selector.modify(worker.connection, events, worker)

    def _take(self, worker: Worker, value: Any, error: str | None, milliseconds: float) -> None:
        place, _ = self._at_work.pop(worker)
        self._free.append(worker)
        self._record(place, Outcome(value, "error" if error else None, error or "", milliseconds))

    def _lose(self, worker: Worker, why: Ending | None = None) -> None:
        """End a worker, or learn how it ended; its item is tried once more where the fault may not be its own."""
        place, since = self._at_work.pop(worker)
        self._selector.unregister(worker.connection)
        status = self._crew.end(worker)
        if why is None:
            why = ending(status, self._settings, worker.is_fresh)
        if not why.by_the_item and place not in self._tried_again:
            self._tried_again.add(place)
            self._waiting.appendleft(place)
        else:
            milliseconds = 1000 * (time.monotonic() - since)
            self._record(place, Outcome(None, why.failure, why.detail, milliseconds))

    def _record(self, place: int, outcome: Outcome) -> None:
        self._outcomes[place] = outcome
        if self._on_progress:
            self._on_progress(len(self._outcomes), len(self._items))

    def _patience(self) -> float:
        """Seconds until a worker has to be looked at even if none says anything."""
        if not self._at_work:
            return 0.0
        soonest = min(since for _, since in self._at_work.values()) + self._settings.deadline
        if not all(worker.memory_is_limited for worker in self._at_work):
            soonest = min(soonest, self._next_look_at_memory)
        return max(0.0, soonest - time.monotonic())

    def _end_late_workers(self) -> None:
        latest = time.monotonic() - self._settings.deadline
        for worker in [worker for worker, (_, since) in self._at_work.items() if since <= latest]:
            self._lose(worker, late(self._settings))

    def _end_swollen_workers(self) -> None:
        """The memory limit, where the system does not enforce it."""
        unlimited = [worker for worker in self._at_work if not worker.memory_is_limited]
        if not unlimited or time.monotonic() < self._next_look_at_memory:
            return
        self._next_look_at_memory = time.monotonic() + MEMORY_POLL_SECONDS
        for worker in unlimited:
            if worker.resident_bytes() > self._settings.memory_limit:
                self._lose(worker, too_large(self._settings, worker.is_fresh))
