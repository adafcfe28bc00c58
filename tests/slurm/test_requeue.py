"""Where a job tells of itself, how it ends, and when it goes back into the queue."""

import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

RESUME_ME = 75


def test_training_prints_into_the_folder_of_its_run_and_slurms_own_output_says_where(scripts):
    python = str(scripts.stand_in("python", more="echo a step\necho a warning >&2\n"))
    for _ in range(2):  # a requeued job goes on in the same file
        done = scripts.job("train_baseline.sh", LAUNCH_PYTHON=python, SLURM_JOB_NAME="mine")
    assert done.stderr == "" and "a step" not in done.stdout
    assert done.stdout.splitlines()[0].endswith("start 1: out/a run/slurm-40007.log")
    assert scripts.log().count("a step\na warning") == 2
    scripts.job("train_baseline.sh", LAUNCH_PYTHON=python, SLURM_ARRAY_JOB_ID="40000", SLURM_ARRAY_TASK_ID="3")
    assert "a step" in scripts.log("slurm-40000_3.log")


def test_bad_input_is_said_before_there_is_a_folder(scripts, tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/usr/bin/env bash\necho "error: unknown key sed" >&2\nexit 2\n')
    python.chmod(0o755)
    done = scripts.job("train_baseline.sh", "sed=1", LAUNCH_PYTHON=str(python))
    assert (done.returncode, done.stderr) == (2, "error: unknown key sed\n")
    assert not (scripts.tree / "out").exists()


@pytest.mark.parametrize("through_a_file", [False, True], ids=["exit code", "file"])
@pytest.mark.parametrize(
    ("variables", "name"),
    [({}, "40007"), ({"SLURM_ARRAY_JOB_ID": "40007", "SLURM_ARRAY_TASK_ID": "3"}, "40007_3")],
    ids=["job", "array task"],
)
def test_an_interrupted_run_is_requeued_by_the_name_that_is_its_own(scripts, variables, name, through_a_file):
    orders = scripts.scontrol()
    python = scripts.stand_in("python", RESUME_ME)
    if through_a_file:  # as under accelerate
        python = scripts.stand_in("python", 1, more=f'echo {RESUME_ME} >"$RLVR_VOCAB_EXIT_CODE_FILE"\n')
    done = scripts.job("train_baseline.sh", LAUNCH_PYTHON=str(python), **variables)
    assert done.returncode == RESUME_ME
    assert orders.read_text().splitlines() == [f"requeue {name}"]
    assert sorted(path.name for path in (scripts.tree / "slurm" / "logs").iterdir()) == [".gitignore"]


PREEMPTED = {"preempted": "2026-01-01T00:00:00"}


@pytest.mark.parametrize(
    ("job", "code", "requeued"),
    [({}, 0, False), ({}, 1, False), ({}, 74, False), (PREEMPTED, 2, False), (PREEMPTED, 74, False),
     (PREEMPTED, RESUME_ME, True), (PREEMPTED, 1, True), (PREEMPTED, 138, True),
     ({"state": "COMPLETING"}, RESUME_ME, False),
     ({"state": "COMPLETING", "reason": "TimeLimit"}, RESUME_ME, True)],
)  # fmt: skip
def test_a_run_is_requeued_where_it_can_go_on_and_slurm_lets_it(scripts, job, code, requeued):
    orders = scripts.scontrol(**job)
    done = scripts.job("train_baseline.sh", LAUNCH_PYTHON=str(scripts.stand_in("python", code)))
    assert done.returncode == (RESUME_ME if requeued else code)
    assert orders.read_text() == "requeue 40007\n" * requeued


def test_three_starts_without_a_new_checkpoint_are_the_last(scripts):
    orders, counts = scripts.scontrol(), []
    saving = 'mkdir -p "out/a run/checkpoint-7" && touch "out/a run/checkpoint-7/manifest.json"\n'
    for more in ("", "", saving, "", "", ""):
        scripts.job("train_baseline.sh", LAUNCH_PYTHON=str(scripts.stand_in("python", RESUME_ME, more)))
        counts.append(len(orders.read_text().splitlines()))
    assert counts == [1, 2, 3, 4, 5, 5]


def test_a_requeued_job_goes_on_with_its_run_whatever_it_was_told_at_first(scripts):
    words = ["overwrite=true", "resume=out/a run/checkpoint-3"]
    scripts.job("train_baseline.sh", *words, LAUNCH_PYTHON=str(scripts.stand_in("python")), SLURM_RESTART_COUNT="1")
    assert scripts.seen("python")[2:] == [*words, "overwrite=false", "resume=auto"]


@pytest.fixture
def counting(scripts):
    """Starts a command that runs the stand-in for training, and waits until that counts its steps."""
    trainer, events = (
        scripts.tree / "rlvr_vocab" / "exp" / "grpo_train.py",
        scripts.tree / "out" / "run" / "events.jsonl",
    )
    trainer.parent.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("trainer.py"), trainer)

    def start(*words, **variables):
        process = scripts.started(*words, "max_steps=200", "saving=2", LAUNCH_PYTHON=sys.executable, **variables)
        end = time.monotonic() + 30
        while not events.exists() and time.monotonic() < end:
            time.sleep(0.1)
        return process, events

    return start


@pytest.mark.parametrize(("number", "requeued"), [(signal.SIGUSR1, True), (signal.SIGTERM, False)])
def test_a_signal_reaches_training_once_and_only_slurms_warning_requeues(scripts, counting, number, requeued):
    orders = scripts.scontrol()
    process, events = counting("train_baseline.sh", **scripts.in_a_job)
    process.send_signal(number)
    assert scripts.ended(process).returncode == RESUME_ME
    assert events.read_text(encoding="utf-8").count("SIGUSR1") == 1
    assert bool(orders.read_text()) == requeued


@pytest.mark.parametrize("to_every_process", [False, True])
def test_a_node_passes_on_one_signal_and_none_that_every_process_has_had(scripts, counting, to_every_process):
    process, events = counting("node.sh", sys.executable, "rlvr_vocab/exp/grpo_train.py", cwd=scripts.tree)
    if to_every_process:
        os.killpg(process.pid, signal.SIGTERM)
    for number in () if to_every_process else (signal.SIGUSR1, signal.SIGTERM, signal.SIGUSR1):
        process.send_signal(number)
        time.sleep(0.2)
    assert scripts.ended(process).returncode == RESUME_ME
    assert events.read_text(encoding="utf-8").count('"signal"') == 1
