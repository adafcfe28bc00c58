"""When malloc is asked to give back what it keeps."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from rlvr_vocab.training import freed_memory
from rlvr_vocab.training.freed_memory import FreedMemory

ON_A_PROCESSOR = SimpleNamespace(device=torch.device("cpu"))


@pytest.fixture
def resident(tmp_path, monkeypatch):
    """Sets how many pages are resident, as the system tells it."""
    file = tmp_path / "statm"
    monkeypatch.setattr(freed_memory, "_RESIDENT", file)

    def say(pages):
        file.write_text(f"99999 {pages} 7 1 0 88 0")

    say(1000)
    return say


def trims(resident, pages, args=ON_A_PROCESSOR):
    """How often memory was given back by the beginning of each step, at which so many pages are resident."""
    callback, asked, counts = FreedMemory(), [], []
    callback._trim = lambda kept: asked.append(kept)
    for each in pages:
        resident(each)
        callback.on_step_begin(args, None, None)
        counts.append(len(asked))
    return counts


def test_memory_is_given_back_before_the_first_step_and_once_it_has_grown_by_a_tenth(resident):
    # After 1,200 pages were too many, the 1,050 of the next step are what the one after that is held against.
    assert trims(resident, [800, 1000, 1090, 1200, 1050, 1150, 1160]) == [1, 1, 1, 2, 2, 2, 3]


def test_a_steady_run_is_left_alone(resident):
    assert trims(resident, [800, 1000, 1050, 990, 1099, 1000]) == [1] * 6


def test_on_a_gpu_nothing_is_given_back(resident):
    assert trims(resident, [1000, 9000], SimpleNamespace(device=torch.device("cuda"))) == [0, 0]


@pytest.mark.slow
@pytest.mark.skipif(not freed_memory._RESIDENT.is_file(), reason="Linux alone tells what is resident")
def test_what_malloc_keeps_goes_back_to_the_system():
    # A process of its own, whose heap nothing else has shaped.
    program = """
from types import SimpleNamespace
from rlvr_vocab.training.freed_memory import _RESIDENT, FreedMemory

def resident():
    return int(_RESIDENT.read_text().split()[1]) * 4096

callback = FreedMemory()
pairs = [(bytearray(60_000), bytearray(600)) for _ in range(3200)]
stays = [small for _, small in pairs]
del pairs
before = resident()
callback.on_step_begin(SimpleNamespace(device=SimpleNamespace(type="cpu")), None, None)
print(before - resident() if callback._trim else "no malloc_trim")
"""
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.strip()
    if said == "no malloc_trim":
        pytest.skip("this C library has none")
    assert int(said) > 150e6
