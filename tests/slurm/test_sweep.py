"""A sweep: which run a task of the array is, and what is said where the array or the words do not fit."""

import pytest

from rlvr_vocab.runs.multirun import jobs_of


@pytest.mark.parametrize(
    ("variables", "words", "size"),
    [({}, [], "0-3"), ({"SEEDS": "5"}, ["seed=range(0,3)", "training.beta=0,0.1"], "0-11")],
)
def test_a_sweep_submits_an_array_of_all_its_runs(scripts, variables, words, size):
    scripts.stand_in("sbatch")
    python = str(scripts.stand_in("python"))
    done = scripts.run("sweep.sh", "training.max_steps=3", *words, LAUNCH_PYTHON=python, **variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert scripts.seen("sbatch") == [f"--array={size}", "slurm/sweep.sh", "training.max_steps=3", *words]


def in_array(scripts, task, count):
    ids = {"SLURM_ARRAY_JOB_ID": "40000", "SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_TASK_COUNT": str(count)}
    return {**scripts.in_a_job, **ids}


@pytest.mark.slow
def test_each_task_of_a_sweep_is_one_of_the_runs_of_multirun(scripts):
    python, runs = str(scripts.stand_in("python")), []
    for task in range(4):
        variables = {"ARMS": "baseline reasoning", "SEEDS": "7 8", "LAUNCH_PYTHON": python}
        done = scripts.run("sweep.sh", "training.max_steps=3", **variables, **in_array(scripts, task, 4))
        assert (done.returncode, done.stderr) == (0, "")
        [job] = jobs_of("train", scripts.seen("python")[1:])
        runs.append((str(job.folder), job.words[:3]))
    assert runs == [
        (f"out/grpo_{arm}_seed{seed}", (f"model.reasoning_vocab_size={size}", f"seed={seed}", "training.max_steps=3"))
        for arm, size in (("baseline", "0"), ("reasoning_151646", "151646"))
        for seed in (7, 8)
    ]


def test_an_array_that_does_not_fit_the_sweep_is_said_in_one_line(scripts):
    python = str(scripts.stand_in("python"))
    done = scripts.run("sweep.sh", LAUNCH_PYTHON=python, **in_array(scripts, 4, 6))
    [line] = done.stderr.splitlines()
    assert done.returncode == 2 and "4 runs, so --array=0-3" in line
    done = scripts.run("sweep.sh", LAUNCH_PYTHON=python, **in_array(scripts, 1, 2))
    [line] = done.stderr.splitlines()
    assert done.returncode == 0 and "this array has 2 tasks" in line
