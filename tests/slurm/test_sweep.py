"""A sweep: which run a task of the array is, and what is said where the array or the words do not fit."""

import pytest


@pytest.mark.parametrize(
    ("variables", "size"),
    [({}, "0-3"), ({"ARMS": "baseline 10 full", "SEEDS": "1 2 3"}, "0-8"), ({"SEEDS": "5"}, "0-1")],
)
def test_a_sweep_submits_an_array_of_arms_by_seeds(scripts, variables, size):
    scripts.stand_in("sbatch")
    scripts.run("sweep.sh", "training.max_steps=3", **variables)
    assert scripts.seen("sbatch") == [f"--array={size}", "slurm/sweep.sh", "training.max_steps=3"]


def in_array(scripts, task: int, count: int) -> dict[str, str]:
    ids = {"SLURM_ARRAY_JOB_ID": "40000", "SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_TASK_COUNT": str(count)}
    return {**scripts.in_a_job, **ids}


def test_each_task_of_a_sweep_is_one_arm_with_one_seed_under_a_name_of_its_own(scripts):
    python, runs = str(scripts.stand_in("python")), []
    for task in range(6):
        variables = {"ARMS": "baseline reasoning 10", "SEEDS": "7 8", "LAUNCH_PYTHON": python}
        done = scripts.run("sweep.sh", "training.max_steps=3", **variables, **in_array(scripts, task, 6))
        assert (done.returncode, done.stderr) == (0, "")
        runs.append(" ".join(scripts.seen("python")[1:]))
    assert runs == [
        f"exp_name=grpo_{arm}_seed{seed} seed={seed} model.reasoning_vocab_size={size} training.max_steps=3"
        for arm, size in (("baseline", "0"), ("reasoning", "full"), ("10", "10"))
        for seed in (7, 8)
    ]
    scripts.run("sweep.sh", NAME="{seed}, the {arm}", LAUNCH_PYTHON=python, **in_array(scripts, 3, 4))
    assert scripts.seen("python")[1] == "exp_name=43, the reasoning"


def test_an_array_that_does_not_fit_arms_by_seeds_is_said_in_one_line(scripts):
    python = str(scripts.stand_in("python"))
    done = scripts.run("sweep.sh", LAUNCH_PYTHON=python, **in_array(scripts, 4, 6))
    [line] = done.stderr.splitlines()
    assert done.returncode == 2 and "4 runs (2 by 2), so --array=0-3" in line
    done = scripts.run("sweep.sh", LAUNCH_PYTHON=python, **in_array(scripts, 1, 2))
    [line] = done.stderr.splitlines()
    assert done.returncode == 0 and "this array has 2 tasks" in line
    done = scripts.run("sweep.sh", LAUNCH_PYTHON=python, **scripts.in_a_job)
    assert done.returncode != 0 and "--array=0-3" in done.stderr


@pytest.mark.parametrize("word", ["exp_name=x", "output_dir=x", "seed=1", "model.reasoning_vocab_size=5"])
def test_what_all_runs_of_a_sweep_would_share_is_refused_before_it_is_sent_off(scripts, word):
    scripts.stand_in("sbatch")
    done = scripts.run("sweep.sh", word)
    assert done.returncode == 2 and word in done.stderr and not (scripts.tree.parent / "seen-sbatch").exists()
