"""When malloc is asked to give back what it keeps."""

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


@pytest.mark.skipif(not freed_memory._RESIDENT.is_file(), reason="Linux alone tells what is resident")
def test_what_malloc_keeps_goes_back_to_the_system():
    def pages():
        return int(freed_memory._RESIDENT.read_text().split()[1])

    callback = FreedMemory()
    if callback._trim is None:
        pytest.skip("this C library has no malloc_trim")
    kept = [[torch.ones(2**14), torch.ones(2**4)] for _ in range(3200)]  # 64 KiB each, and what stays between them
    stays = [small for _, small in kept]
    del kept
    before = pages()
    callback.on_step_begin(ON_A_PROCESSOR, None, None)
    assert len(stays) == 3200 and (before - pages()) * 4096 > 150 * 2**20
