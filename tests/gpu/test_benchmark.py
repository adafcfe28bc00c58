"""`make benchmark-gpu` at toy size: what it counts, and that it goes on where it was stopped."""

import argparse
import importlib
import json

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM

from .conftest import ROOT, run_python

BENCHMARKS = ROOT / "benchmarks"


def test_a_line_is_measured_once_and_kept_with_its_traces(device, tmp_path):
    words = (str(BENCHMARKS / "gpu.py"), "--shape", "toy", "--out", str(tmp_path), "--only", "n = V, frozen")
    first, again = run_python(*words), run_python(*words)
    assert first.returncode == 0, first.stderr[-3000:]
    [file] = tmp_path.glob("*.json")
    content = json.loads(file.read_text())
    [(key, row)] = content["rows"].items()
    assert key == "toy: n = V, frozen" and f"{key}: measured" in first.stdout
    assert again.returncode == 0 and ": measured" not in again.stdout and key in again.stdout
    step = row["step"]
    assert step["seconds"] == pytest.approx(step["forward"] + step["backward"] + step["optimizer"], rel=0.5)
    assert row["sampling"]["tokens_per_second"] > 0
    assert row["gib"].keys() >= {"loading", "sampling", "forward", "backward", "optimizer"}
    traces = sorted(each.name for each in tmp_path.glob("*/*/*.json.gz"))
    assert traces == ["sampling.json.gz", "step.json.gz"]


def test_the_operations_of_a_step_are_those_that_torch_counts(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(BENCHMARKS)
    benchmark, one_step = importlib.import_module("gpu"), importlib.import_module("step")
    shape = {**benchmark.SHAPES["toy"], "hidden": 128, "layers": 3, "completion": 48}
    setting = argparse.Namespace(**shape, folder=str(tmp_path))
    one_step.make_base(setting)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype="float32", attn_implementation="eager")
    length = setting.prompt + setting.completion
    with FlopCounterMode(display=False) as counted:
        ids = torch.zeros(setting.batch, length, dtype=torch.long)
        model(input_ids=ids, logits_to_keep=setting.completion).logits.sum().backward()
    # Eager attention computes what lies behind a token, too, and throws it away.
    not_causal = 3 * setting.batch * 2 * setting.layers * setting.heads * setting.head_dim * length**2
    assert counted.get_total_flops() == benchmark.plain_flops(setting)["step"] + not_causal
