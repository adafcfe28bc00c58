"""Tensor arithmetic on a single thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Small operations by the thousand, often beside a training run that has all cores: threads that wait for each
    other at every one of them take ten times as long as one alone."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
