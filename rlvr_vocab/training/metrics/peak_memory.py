"""The highest memory of this process in each phase of a run, inside the steps of a training and around them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from accelerate import PartialState

GIB = 2**30
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_CLEAR_PEAK = b"5"  # proc(5)
_PEAK = re.compile(rb"^VmHWM:\s+(\d+) kB", re.MULTILINE)
_BETWEEN = "other"


class PeakMemory:
    """Measures the peak of each phase: what torch has allocated on a CUDA device, else the resident pages.

    These are those of this process without its workers, mapped files among them; Linux alone tells them. Where the peak
    cannot be read or begun anew, nothing is measured.

    Attributes:
        highest: GiB by phase, since the process began.
    """

    def __init__(self) -> None:
        self.highest: dict[str, float] = {}
        self._phase = _BETWEEN

    def enter(self, phase: str | None) -> float | None:
        """Be in a phase from now on, or in none of them.

        Returns:
            The peak of the phase that ends here, in GiB; None where it cannot be measured.
        """
        peak = _peak_since_the_last_call()
        if peak is not None:
            self.highest[self._phase] = max(peak, self.highest.get(self._phase, 0.0))
        self._phase = phase or _BETWEEN
        return peak

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Be in a phase as long as the block, or the function that this decorates, runs, and then in the one before."""
        before = self._phase
        self.enter(name)
        try:
            yield
        finally:
            self.enter(before)


def _peak_since_the_last_call() -> float | None:
    if PartialState().device.type == "cuda":
        peak = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        return peak / GIB
    try:
        found = _PEAK.search(_STATUS.read_bytes())
        _CLEAR.write_bytes(_CLEAR_PEAK)
    except OSError:  # another system, or one that shows /proc read-only
        return None
    return None if found is None else int(found[1]) * 1024 / GIB


# Of the process, so that whatever takes part in a run can say which phase it is.
peak_memory = PeakMemory()
