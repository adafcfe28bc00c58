"""The processes of one pool: started when first needed, lent to batches, replaced when lost, safe across `os.fork`."""

from __future__ import annotations

import os
import threading
import weakref

from rlvr_vocab.verify.pool.processes import Template, TemplateLost, Worker
from rlvr_vocab.verify.pool.wire import Settings

STARTS_BEFORE_GIVING_UP = 5


class Crew:
    """A template and its workers, for any number of threads.

    `size` bounds the workers, except that a batch is never refused its first one: so no batch waits for another.
    """

    def __init__(self, settings: Settings, size: int) -> None:
        self.settings = settings
        self._size = size
        self._template: Template | None = None
        self._resting: list[Worker] = []
        # Weak, so that a worker whose batch was interrupted at the worst moment counts no longer: its connection
        # closes with it, which ends the process.
        self._workers: weakref.WeakSet[Worker] = weakref.WeakSet()
        self._is_closed = False
        _CREWS.add(self)

    def borrow(self, is_first: bool) -> Worker | None:
        """A worker without an item, or None when all are in use and `is_first` is false.

        Raises:
            RuntimeError: the pool is closed, or its processes cannot be started.
        """
        with _LOCK:
            if self._is_closed:
                raise RuntimeError("this pool of worker processes is closed")
            if self._template and not self._template.is_alive():
                self._stop_template()
            while self._resting:
                worker = self._resting.pop()
                if worker.is_at_rest():
                    return worker
                self.end(worker)
            if is_first or len(self._workers) < self._size:
                return self._fork()
            return None

    def give_back(self, worker: Worker) -> None:
        """Take back a worker that has answered everything it was given."""
        with _LOCK:
            if self._is_closed or worker.template is not self._template or len(self._workers) > self._size:
                self.end(worker)
            else:
                self._resting.append(worker)

    def end(self, worker: Worker) -> int | None:
        """End a worker, whatever it is doing; its wait status, None where its template is lost."""
        with _LOCK:
            self._workers.discard(worker)
            try:
                return worker.template.end(worker.pid)
            except TemplateLost:
                worker.kill()
                if worker.template is self._template:
                    self._stop_template()
                return None
            finally:
                worker.connection.close()

    def close(self) -> None:
        """End all processes, for good."""
        with _LOCK:
            self._is_closed = True
            self._stop_template()

    def forget(self) -> None:
        """In a forked child: begin with nothing, and leave the parent's processes to the parent."""
        for worker in self._workers:
            worker.connection.close()
        if self._template:
            self._template.forget()
        self._template = None
        self._resting = []
        self._workers = weakref.WeakSet()

    def _fork(self) -> Worker:
        for _ in range(STARTS_BEFORE_GIVING_UP):
            try:
                if self._template is None:
                    self._template = Template(self.settings)
                worker = Worker(self._template)
            except TemplateLost as error:
                reason = str(error)
                self._stop_template()
                continue
            self._workers.add(worker)
            return worker
        raise RuntimeError(
            f"the worker processes for {self.settings.task} were lost {STARTS_BEFORE_GIVING_UP} times while they"
            f" started, the last time: {reason}"
        )

    def _stop_template(self) -> None:
        while self._resting:
            worker = self._resting.pop()
            self._workers.discard(worker)
            worker.connection.close()
        if self._template:
            template, self._template = self._template, None
            template.stop()


_CREWS: weakref.WeakSet[Crew] = weakref.WeakSet()
# One for all crews: a fork waits until none of them is in the middle of starting a process, so a child finds no
# half-made ones. Reentrant, because a signal handler may fork while its thread is in here.
_LOCK = threading.RLock()


def _forget_what_is_the_parents() -> None:
    try:
        for crew in _CREWS:
            crew.forget()
    finally:
        _LOCK.release()


os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_forget_what_is_the_parents)
