"""Pools whose workers run the functions of `pool_tasks.py`, closed after the test, and a look at their processes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlvr_vocab.verify.pool import WorkerPool


@pytest.fixture(autouse=True)
def _importable_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)


@pytest.fixture
def make_pool() -> Iterator[Callable[..., WorkerPool]]:
    made = []

    def make(task: str = "pool_tasks:act", **settings: Any) -> WorkerPool:
        made.append(WorkerPool(task, **settings))
        return made[-1]

    yield make
    for pool in made:
        pool.close()


@pytest.fixture
def processes() -> Callable[[], list[psutil.Process]]:
    """The living and the dead that this process is the forebear of, those apart that were there before the test."""
    before = set(psutil.Process().children(recursive=True))
    return lambda: [process for process in psutil.Process().children(recursive=True) if process not in before]
