"""What scoring takes of a device beside plain TRL, and the words of a run for which the memory does not suffice."""

import argparse
import os
import subprocess
import sys

from benchmarks import step as one_step
from rlvr_vocab.errors import OUT_OF_ROOM

from .conftest import HERE

# Logits of a whole batch, which nobody should hold, are 5 GB on the GPU and 134 MB on the CPU.
SHAPES = {
    "cuda": {"hidden": 1024, "layers": 2, "rows": 151_936, "batch": 8, "prompt": 128, "completion": 1024},
    "cpu": {"hidden": 64, "layers": 1, "rows": 32_768, "batch": 4, "prompt": 16, "completion": 256},
}


def test_a_step_needs_no_more_memory_than_one_of_plain_trl(device, report, tmp_path):
    shape = SHAPES[device.type]
    setting = argparse.Namespace(**shape, heads=None, head_dim=64, thinking=0.75, steps=1, folder=str(tmp_path))
    one_step.make_base(setting)
    variants = ("plain TRL", "n = 0", "n = V, low rank")
    peaks = {name: one_step.in_own_process(setting, name)["peak_mib"] for name in variants}
    report(f"MiB beyond weights, gradients and optimizer: {peaks}")
    all_logits = shape["batch"] * shape["completion"] * shape["rows"] * 4 / 2**20
    for name in ("n = 0", "n = V, low rank"):
        # Its blocks of logits are of one size for any batch, and on a GPU larger than TRL's.
        assert peaks[name] < 1.1 * peaks["plain TRL"] + 0.1 * all_logits
        assert peaks[name] < all_logits


def test_a_run_that_really_runs_out_of_memory_ends_with_one_line_and_its_code(report, tmp_path):
    command, environment = [sys.executable, str(HERE / "out_of_memory.py")], {"PYTHONPATH": str(HERE.parents[1])}
    done = subprocess.run(
        [*command, str(tmp_path)], env=os.environ | environment, capture_output=True, text=True, timeout=600
    )
    said = done.stderr.strip().splitlines()[-1]
    report(f"out of memory: exit code {done.returncode}, {said[:100]}")
    assert done.returncode == OUT_OF_ROOM, done.stderr[-3000:]
    assert said.startswith("error: ") and "memory" in said
