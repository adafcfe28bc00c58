"""Memory of freed tensors that malloc keeps on a processor, given back to the system once it has grown."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

_RESIDENT = Path("/proc/self/statm")
_GROWTH = 1.1


class FreedMemory(TrainerCallback):
    """Has glibc give pages back before the first step, and between two where the resident memory has grown by a tenth.

    Reading problems and loading a model leave free blocks behind. Completions have other lengths in each step, and the
    blocks of one step do not fit the next one's tensors, so that a run grows with every longest step (docs/LOG.md).
    Giving all of them back after each step would cost a small model a tenth of its time in page faults.
    """

    def __init__(self) -> None:
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
        self._trim = trim if _RESIDENT.is_file() else None
        self._usual: int | None = 0

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self._trim is None or args.device.type != "cpu":
            return
        resident = int(_RESIDENT.read_text().split()[1])
        if self._usual is None:
            self._usual = resident
        elif resident > _GROWTH * self._usual:
            self._trim(0)
            self._usual = None
