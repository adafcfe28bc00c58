"""The peak of memory of each phase: begun anew with the phase, and the highest of those that had its name."""

import sys

import pytest
import torch

from rlvr_vocab.training.metrics import step_clock as module
from rlvr_vocab.training.metrics.step_clock import PeakMemory

linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells the peak of resident memory")


def gibibytes(number):
    """A tensor of that size, each page of it touched."""
    return torch.ones(int(number * 2**28))


@linux
def test_each_phase_has_the_peak_of_its_own():
    peaks = PeakMemory()
    with peaks.phase("nothing"):
        pass
    with peaks.phase("large"):
        kept = gibibytes(0.25)
        kept_too = gibibytes(0.25)
        del kept_too
    with peaks.phase("kept"):
        pass
    with peaks.phase("large"):
        pass  # less than before
    above = {phase: peaks.highest[phase] - peaks.highest["nothing"] for phase in ("large", "kept")}
    assert above == pytest.approx({"large": 0.5, "kept": kept.nbytes / 2**30}, abs=0.02)


def test_nothing_is_measured_where_the_peak_cannot_begin_anew(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_CLEAR", tmp_path)  # a folder: nothing can be written into it
    peaks = PeakMemory()
    with peaks.phase("any"):
        pass
    assert peaks.enter(None) is None and peaks.highest == {}
