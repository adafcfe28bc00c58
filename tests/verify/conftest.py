"""Pools whose workers run the functions of `pool_tasks.py`, and a look at their processes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlvr_vocab.verify.worker_pool import Outcome, WorkerPool

Processes = Callable[[], list[psutil.Process]]


class Pool(WorkerPool):
    """A pool whose deadline is its own, unless a call gives another."""

    def __init__(self, task: str, deadline: float = 2.0, **settings: Any) -> None:
        super().__init__(task, **settings)
        self.deadline = deadline

    def run(self, items: Any, deadline: float | None = None, on_progress: Any = None) -> list[Outcome]:
        return super().run(items, self.deadline if deadline is None else deadline, on_progress)

    def values(self, *items: Any) -> list[Any]:
        return [outcome.value for outcome in self.run(items)]


MakePool = Callable[..., Pool]


@pytest.fixture
def make_pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[MakePool]:
    """Makes pools whose workers run the functions of `pool_tasks.py`, closed after the test."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    made = []

    def make(task: str = "pool_tasks:act", **settings: Any) -> Pool:
        made.append(Pool(task, **settings))
        return made[-1]

    yield make
    made.clear()


@pytest.fixture
def processes() -> Processes:
    """The living and the dead that this process is the forebear of, those apart that were there before the test."""
    before = set(psutil.Process().children(recursive=True))
    return lambda: [process for process in psutil.Process().children(recursive=True) if process not in before]


def echoes(*values: Any) -> list[list[Any]]:
    return [["echo", value] for value in values]
