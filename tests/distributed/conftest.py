"""Two processes on the CPU, started as a user starts them, and runs of the same cases in one and in two."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CONFIGS = ROOT / "accelerate_configs"
TWO_GROUPS = {"num_generations": 6, "per_device_train_batch_size": 12}
LORA = {"r": 4, "lora_dropout": 0.0}
# Compared between one process and two: name, shape of the model, and what differs from the worker's defaults.
SAME = {
    "tied_dapo": {"shape": "qwen3", "adaptive": True, "kl_log_steps": 1, "args": {"loss_type": "dapo"}},
    "tied_grpo": {
        "shape": "qwen3",
        "args": {"loss_type": "grpo", "gradient_accumulation_steps": 2, "num_iterations": 2},
    },
    "untied_dapo": {
        "shape": "llama",
        "adaptive": True,
        "args": {"loss_type": "dapo", "gradient_accumulation_steps": 2, "gradient_checkpointing": True},
    },
    "group_in_two_processes": {"shape": "phi", "args": {"num_generations": 8, "per_device_train_batch_size": 8}},
    "reference": {"shape": "gpt2_untied", "args": {"beta": 0.1}},
    "dynamic": {"shape": "qwen3", "dynamic_sampling": True, "args": TWO_GROUPS},
    "low_rank_tied": {"shape": "qwen3", "rank": 16, "kl_log_steps": 1, "args": {"loss_type": "dapo"}},
    "low_rank_reference": {"shape": "llama", "rank": 16, "args": {"beta": 0.1, "num_iterations": 2}},
    "lora_low_rank": {"shape": "llama", "rank": 16, "lora": LORA, "args": {"beta": 0.1}},
    "lora_tied": {"shape": "qwen3", "lora": LORA},
    "lora_untied": {"shape": "llama", "lora": LORA, "args": {"beta": 0.1}},
}
RESUMED = {"max_steps": 4, "num_iterations": 2, "optim": "adamw_torch", "learning_rate": 1e-3}
# With samples of their own; in two processes alone.
SAMPLED = {
    "sampled": {"shape": "qwen3", "forced": False},
    "one_ends_early": {"shape": "llama", "forced": False, "first_ends_at_once": True},
    "tools": {"shape": "phi", "forced": False, "tools": True, "args": {"max_completion_length": 220, "top_p": 0.9}},
    "whole": {"shape": "qwen3", "forced": False, "args": RESUMED},
    "told_to_stop": {"shape": "qwen3", "forced": False, "args": RESUMED, "second_is_told_to_stop": True},
    "resumed": {"shape": "qwen3", "forced": False, "args": RESUMED, "resume": "told_to_stop/run/checkpoint-1"},
}
ALONE = ("one", "adamw")
WITH_ADAMW = ("adamw", "deepspeed_zero3")  # DeepSpeed takes no SGD
SMALL = (
    *("experiment=quickstart", "report=false", "training.eval_steps=null", "warmup.max_steps=2"),
    *("training.per_device_train_batch_size=4", "training.num_generations=4", "training.max_completion_length=16"),
    *("training.kl_log_steps=0", "training.max_steps=2", "training.warmup_ratio=0", "training.use_cpu=true"),
    *("dataset.max_eval_samples=4", "dataset.generator.num_problems=300"),
    "rewards=[{name:length,params:{longest:1,falloff:300,unit:characters}},accuracy]",
)


def launch(config, script, *words, processes=2, seconds=600):
    """So many processes by `accelerate launch`, and nothing left of them afterwards."""
    file = str(CONFIGS / f"{config}.yaml")
    launcher = (sys.executable, "-m", "accelerate.commands.launch")
    command = [*launcher, "--config_file", file, "--num_processes", str(processes), "--main_process_port", "0"]
    return run([*command, str(script), *words], seconds)


def run(command, seconds=600):
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        output, errors = process.communicate(timeout=seconds)
    finally:
        if process.poll() is None:  # the launcher gives its processes sessions of their own
            for each in [*psutil.Process(process.pid).children(recursive=True), process]:
                each.kill()
            process.wait()
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


QUICK = ("test_what_one_process_alone_finds_wrong_ends_all_and_is_told_once",)


def pytest_collection_modifyitems(items):
    """Each case starts two processes that take both cores for a minute."""
    for item in items:
        if item.path.parent == HERE and item.name not in QUICK:
            item.add_marker("slow")


@pytest.fixture(scope="session")
def trained(expand_shape, calling_shape, tmp_path_factory):
    """The folder of a case, by its name and how it was trained: a file of accelerate's, or `one` of ALONE."""
    root = tmp_path_factory.mktemp("trained")

    def folder_of(kind, name):
        if not (root / kind).exists():
            cases = {**SAME, **SAMPLED} if kind in ("ddp", "fsdp2") else SAME
            if kind in WITH_ADAMW:  # an adapter with rows is refused under DeepSpeed
                cases = {name: case for name, case in SAME.items() if "lora" not in case}
            _train(kind, cases, root / kind, {False: expand_shape, True: calling_shape})
        return root / kind / name

    return folder_of


def _train(kind, cases, out, shapes):
    listed = [_case(kind, name, case, out, shapes["tools" in case]) for name, case in cases.items()]
    out.mkdir()
    file = out / "cases.json"
    file.write_text(json.dumps(listed))
    script = HERE / "trained_cases.py"
    done = run([sys.executable, str(script), str(file)]) if kind in ALONE else launch(kind, script, str(file))
    assert done.returncode == 0, done.stderr[-6000:]


def _case(kind, name, case, out, expand_shape):
    args = {"per_device_train_batch_size": 4, **case.get("args", {})}
    if kind not in ALONE:  # the same batch over all processes
        args["per_device_train_batch_size"] //= 2
    if kind in WITH_ADAMW:
        args.update(optim="adamw_torch", learning_rate=1e-3)
    folder = expand_shape(case["shape"], size=100, reasoning_rank=case.get("rank"))
    written = {**case, "out": str(out / name), "folder": str(folder), "args": args}
    if "resume" in case:
        written["resume"] = str(out / case["resume"])
    return written


@pytest.fixture(scope="session")
def started():
    """Two processes under a file of `accelerate_configs`, on a script of this folder: a small run with the words."""
    return lambda config, script, *words, **more: launch(config, HERE / script, *SMALL, *words, **more)
