"""Which phase a trainer is in, noted where each begins, so that a lack of memory can be told by it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from transformers import TrainerCallback

Phase = Literal[
    "loading",
    "loading the reference",
    "sampling",
    "evaluating",
    "scoring",
    "loss",
    "backward",
    "optimizer",
    "saving",
    "training",
]


class PhaseTracker(TrainerCallback):
    """The phase of a trainer; as a callback it notes those whose begin no method of the trainer marks."""

    def __init__(self) -> None:
        self.current: Phase = "loading"

    @contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        """Be in a phase, then in the one before again; after an error, stay in the phase in which it came."""
        before, self.current = self.current, phase
        yield
        self.current = before

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.current = "training"

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        self.current = "optimizer"

    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        self.current = "training"
