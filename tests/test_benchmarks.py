"""The benchmark of docs/gpu.md, which is run by hand where there is a GPU, still runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_benchmark_of_a_gpu_runs_at_toy_size_on_a_cpu(tmp_path):
    variants = ("plain TRL", "n = 0", "n = V, low rank")
    words = ["--shape", "toy", "--only", *variants, "--out", str(tmp_path)]
    environment = {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), *words]
    subprocess.run(command, env=environment, check=True)
    rows = json.loads((tmp_path / "CPU.json").read_text())["rows"]
    assert rows.keys() == {f"toy: {name}" for name in variants}
    assert all(row["step"]["seconds"] > 0 and row["sampling"]["tokens_per_second"] > 0 for row in rows.values())
