"""The device of a process: what is here, and the NVIDIA GPU that torch cannot use."""

from pathlib import Path

import pytest
import torch

from rlvr_vocab.device import device_type
from rlvr_vocab.errors import UserError

TOO_OLD = "The NVIDIA driver on your system is too old (found version 12040).\nPlease update your GPU driver"


@pytest.fixture
def gpu_without_driver(monkeypatch):
    def fail():
        raise RuntimeError(TOO_OLD)

    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: None)
    monkeypatch.setattr(torch.cuda, "init", fail)
    monkeypatch.setattr(Path, "glob", lambda self, pattern: [Path("/dev/nvidia0")])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("gpu_without_driver")
def test_a_gpu_whose_driver_is_too_old_is_not_left_alone_unnoticed(monkeypatch):
    with pytest.raises(UserError, match=r"driver on your system is too old .*found version 12040.* Please") as caught:
        device_type()
    assert "\n" not in str(caught.value) and "CUDA_VISIBLE_DEVICES=" in str(caught.value)
    assert device_type(use_cpu=True) == "cpu"
    for hidden in ("", "-1", "NoDevFiles"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert device_type() == "cpu"


def test_without_a_gpu_it_is_the_cpu_and_one_that_works_is_taken(monkeypatch):
    monkeypatch.setattr(Path, "glob", lambda self, pattern: [])
    for found in (None, torch.device("cuda")):
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available, found=found: found)
        assert device_type() == ("cpu" if found is None else "cuda")
