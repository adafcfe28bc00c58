"""A run over quantized weights from the command line, in a process of its own: it ends well, on a quiet screen."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("bitsandbytes", reason="the extra quantization is not installed")

RUN = (
    *("quickstart", "report=false", "training.eval_steps=null", "warmup.max_steps=0", "training.max_steps=2"),
    *("training.warmup_ratio=0", "training.per_device_train_batch_size=16", "training.num_generations=4"),
    "training.learning_rate=1e-2",
    "training.entropy_coef=0.1",  # a gradient even where no completion is right
    *("training.beta=0.04", "dataset.max_eval_samples=8", "dataset.generator.num_problems=300"),
    *("training.use_cpu=true", "output_dir=run"),
)


@pytest.mark.slow
def test_a_quantized_run_says_that_it_trains_an_adapter_and_ends_well(tmp_path):
    words = ["model.model_kwargs.load_in_4bit=true", "training.optim=paged_adamw_8bit"]
    done = subprocess.run(
        [sys.executable, "-m", "rlvr_vocab.cli", *RUN, *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "load_in_4bit=true: the weights themselves cannot train, so LoRA is switched on" in done.stdout
    assert done.stderr == ""
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert abs(metrics[0]["kl"]) < 1e-6 < metrics[1]["kl"]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["finished"] and summary["steps"] == 2
    versions = json.loads((tmp_path / "run" / "environment.json").read_text())["versions"]
    assert "bitsandbytes" in versions
