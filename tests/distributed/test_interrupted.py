"""Two processes that are told to stop: both after the same step, and the run goes on as if it had not been.

RLVR_VOCAB_SURVIVAL tries more ways to be told, under FSDP2 too.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from safetensors.torch import load_file

WORDS = (
    "training.max_steps=10",
    "training.num_iterations=2",
    "training.save_steps=100",
    "training.save_strategy=steps",
)
FEW = [("ddp", "one of them", signal.SIGUSR1)]
MORE = [
    ("ddp", "the launcher", signal.SIGTERM),
    ("ddp", "the launcher", signal.SIGINT),
    ("ddp", "all of them", signal.SIGTERM),
    ("fsdp2", "one of them", signal.SIGTERM),
    ("fsdp2", "the launcher", signal.SIGTERM),
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def start(cache, grpo_train, here, config_file, small, tmp_path):
    """Starts a run in two processes; the process of the launcher."""
    started = []

    def begin(kind: str, folder: Path) -> subprocess.Popen[str]:
        script = here / "fsdp_on_cpu.py" if kind == "fsdp2" else grpo_train
        launcher = (sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config_file(kind)))
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(grpo_train.parents[2]),
            "RLVR_VOCAB_CACHE": cache,
            "RLVR_VOCAB_EXIT_CODE_FILE": f"{folder}.code",
        }
        words = [*launcher, "--main_process_port", "0", str(script), *small, *WORDS, f"output_dir={folder}"]
        with (tmp_path / f"{folder.name}.log").open("a") as log:
            started.append(subprocess.Popen(words, env=environment, stdout=log, stderr=log, text=True))
        return started[-1]

    yield begin
    for process in started:
        if process.poll() is None:
            for each in [*psutil.Process(process.pid).children(recursive=True), process]:
                each.kill()


def code_of(process: subprocess.Popen[str], folder: Path) -> int:
    process.wait(timeout=240)
    return int(Path(f"{folder}.code").read_text())


def wait_for_rows(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 120
    while not (folder / "metrics.jsonl").exists() or len((folder / "metrics.jsonl").read_text().splitlines()) < count:
        assert time.monotonic() < deadline, "no step in two minutes"
        time.sleep(0.005)


def ranks_of(launcher: subprocess.Popen[str]) -> list[psutil.Process]:
    children = psutil.Process(launcher.pid).children(recursive=True)
    return sorted((each for each in children if "LOCAL_RANK" in each.environ()), key=lambda each: each.pid)[:2]


def tell(launcher: subprocess.Popen[str], whom: str, number: int) -> None:
    ranks = ranks_of(launcher)
    told = {"one of them": ranks[1:], "all of them": ranks, "the launcher": [psutil.Process(launcher.pid)]}[whom]
    for process in told:
        process.send_signal(number)


def end_of(folder: Path) -> tuple:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    weights = load_file(folder / "final_model" / "model.safetensors")
    return {name: tuple(weight.flatten().tolist()) for name, weight in weights.items()}, [
        {key: value for key, value in row.items() if not key.startswith(("step_time", "time/"))} for row in rows
    ]


@pytest.mark.parametrize(("kind", "whom", "number"), FEW + (MORE if "RLVR_VOCAB_SURVIVAL" in os.environ else []))
def test_two_processes_that_are_told_to_stop(kind, whom, number, start, tmp_path):
    whole, folder = tmp_path / "whole", tmp_path / "run"
    assert code_of(start(kind, whole), whole) == 0
    process = start(kind, folder)
    wait_for_rows(folder, 3)
    tell(process, whom, number)
    assert code_of(process, folder) == 75, (tmp_path / "run.log").read_text()[-3000:]
    [checkpoint] = folder.glob("checkpoint-*")
    assert {"pending_0.pt", "pending_1.pt", "rng_state_0.pth", "rng_state_1.pth"} < {
        path.name for path in checkpoint.iterdir()
    }
    told = [line for line in (tmp_path / "run.log").read_text().splitlines() if line.startswith("interrupted:")]
    step = int(checkpoint.name.removeprefix("checkpoint-"))
    by = f"by {signal.Signals(number).name} after step {step}"
    assert told == [f"interrupted: {by}, saved in {checkpoint.name}; the same command goes on"]
    assert code_of(start(kind, folder), folder) == 0, (tmp_path / "run.log").read_text()[-3000:]
    assert end_of(folder) == end_of(whole)
