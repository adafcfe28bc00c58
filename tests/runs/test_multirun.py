"""`--multirun`: the runs of a sweep and their names, checks before the first starts, failures and signals."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from rlvr_vocab.cli import main
from rlvr_vocab.errors import STOP_SIGNALS, UserError
from rlvr_vocab.runs.multirun import Job, jobs_of, run_jobs

SMALL = (
    *("experiment=quickstart", "model.reasoning_vocab_size=0", "warmup.max_steps=1", "dataset.max_eval_samples=4"),
    *("dataset.generator.num_problems=60",),
    *("training.max_steps=1", "training.per_device_train_batch_size=4", "training.num_generations=2", "report=false"),
)
# Ends as a run does that was told to stop, and leaves a line for each start and each signal.
RUN = """#!/bin/sh
echo started >>{events}
trap 'echo told >>{events}' TERM
until grep -q told {events}; do sleep 0.05; done
for _ in 1 2 3 4 5 6; do sleep 0.25; done
exit 75
"""


@pytest.fixture(autouse=True)
def folder(tmp_path):
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield tmp_path
    for number, handler in handlers.items():
        signal.signal(number, handler)


def job(word):
    return Job((word,), (f"seed={word}",), Path("out") / word)


def test_a_run_that_fails_does_not_keep_the_next_from_starting(capfd):
    assert run_jobs("train", [job("--help"), job("seed=x"), job("-h")]) == 2
    out, error = capfd.readouterr()
    assert "job 3 of 3: seed=-h -> out/-h" in out and "seed=x: should be a valid integer" in error
    assert [line.split()[0] for line in out.splitlines()[-3:]] == ["finished:", "failed", "finished:"]


def test_a_signal_reaches_the_run_once_and_no_other_starts(folder, monkeypatch, capfd):
    events, run = folder / "events", folder / "run"
    run.write_text(RUN.format(events=events), encoding="utf-8")
    run.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(run))

    def tell_once_it_runs():
        while not events.exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=tell_once_it_runs).start()
    assert run_jobs("train", [job("1"), job("2")]) == 75
    assert events.read_text(encoding="utf-8").split() == ["started", "told"]
    out = capfd.readouterr().out
    assert "interrupted: seed=1" in out and "not started: seed=2" in out


def test_every_run_is_checked_before_the_first_starts(folder, capsys):
    assert main(["train", "-m", *SMALL, "seed=1,2", "training.beta=0,x"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: job 2 of 4 (seed=1 training.beta=x): training.beta")
    assert captured.err.count("\n") == 1 and captured.out == "" and not (folder / "out").exists()


@pytest.mark.slow
def test_two_runs_are_trained_and_shown_again_by_the_same_command(folder, capfd):
    words = ["train", "-m", *SMALL, "training.loss_type=dapo,grpo"]
    assert main(words) == 0
    runs = [f"out/quickstart_baseline_seed42_loss_type_{loss}" for loss in ("dapo", "grpo")]
    assert all(json.loads((folder / run / "summary.json").read_text(encoding="utf-8"))["finished"] for run in runs)
    assert main(words) == 0
    assert capfd.readouterr().out.count("holds this run, finished") == 2


def composed(*words):
    return jobs_of("train", ["--multirun", *words])


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["seed=range(1,4)"], ["seed=1", "seed=2", "seed=3"]),
        (["seed=1,1,2"], ["seed=1", "seed=2"]),
        (["rewards=[accuracy,boxed],[accuracy]"], ["rewards=[accuracy,boxed]", "rewards=[accuracy]"]),
        (["training.trainer=null,my.py:Mine"], ["training.trainer=null", "training.trainer=my.py:Mine"]),
        (["seed=1,2", "--show", "seed"], ["seed=1", "seed=2"]),
        (["seed=1,2", "seed=3"], [""]),  # of a key that is given twice the last counts
        (["rewards=[accuracy,boxed]", "dataset.system_prompt=Think (hard), then answer."], [""]),
        (["training=small_gpu,large_gpu", "seed=1,2"],
         [f"training={size}_gpu seed={seed}" for size in ("small", "large") for seed in (1, 2)]),
    ],
)  # fmt: skip
def test_the_values_are_those_of_hydras_grammar_the_last_key_fastest(words, values):
    assert [str(job) for job in composed(*words)] == values


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["model.reasoning_vocab_size=0,10"], ["grpo_baseline", "grpo_reasoning_10"]),
        (["training.learning_rate=1e-6,2e-6"], [f"grpo_baseline_learning_rate{rate}e-06" for rate in (1, 2)]),
        (["rewards=[accuracy,boxed],xml"], ["grpo_baseline_rewards_accuracy-boxed", "grpo_baseline_rewards_xml"]),
    ],
)
def test_a_name_holds_what_differs_between_runs_and_no_more(words, expected):
    jobs = composed(*words)
    assert [job.folder.name for job in jobs] == expected
    assert [alone.folder for alone in composed(*jobs[-1].words)] == [jobs[-1].folder]
    assert composed(*words, "--job", "1") == jobs[1:]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["seed=1,2", "output_dir=here"], "several runs of the sweep would write here"),
        (["rewards=glob(*)"], "write its values"),
        (["seed=1,2", "--job", "2"], "--job 2: the sweep has 2 jobs, 0 to 1"),
    ],
)
def test_a_sweep_that_cannot_be_is_one_line(words, message):
    with pytest.raises(UserError) as caught:
        composed(*words)
    assert message in str(caught.value) and "\n" not in str(caught.value)
