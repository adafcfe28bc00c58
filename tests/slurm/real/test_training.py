"""Quickstarts in earnest, sent off by nothing but sbatch and cut off by their time limit."""

import json

import pytest

pytest.importorskip("torch")

STEPS = 60
# A quickstart in size, with hardly a warm-up: it is the training that shall be cut off.
QUICKSTART = [
    "experiment=quickstart",
    f"training.max_steps={STEPS}",
    "dataset.generator.num_problems=1000",
    "warmup.max_steps=5",
    "warmup.until_accuracy=null",
]


def rows(file):
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_two_arms_are_cut_off_by_their_time_limit_and_each_finishes_its_run(real_cluster):
    limit = ["--time=2", "--signal=B:USR1@30"]
    jobs = {
        arm: real_cluster.sbatch(*limit, f"slurm/train_{arm}.sh", *QUICKSTART, f"exp_name={arm}", "overwrite=true")
        for arm in ("reasoning", "baseline")
    }
    for arm, job in jobs.items():
        ended = real_cluster.ended(job, seconds=900)
        assert ended["JobState"] == "COMPLETED" and int(ended["Restarts"]) >= 1, real_cluster.told()
        folder = real_cluster.tree / "out" / arm
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        assert summary["finished"] and summary["steps"] == STEPS
        assert [row["step"] for row in rows(folder / "metrics.jsonl") if "reward" in row] == list(range(1, STEPS + 1))
        log = (folder / f"slurm-{job}.log").read_text(encoding="utf-8")
        assert log.count("interrupted and saved: requeued") == int(ended["Restarts"])
        assert "going on from" in log
        assert "done" in real_cluster.own_output() and "interrupted and saved: requeued" in real_cluster.own_output()


def test_a_sweep_of_two_arms_by_two_seeds_divides_the_problems_by_the_seed_alone(real_cluster):
    words = [*QUICKSTART, "training.max_steps=2"]
    array = real_cluster.sbatch("--array=0-3%2", "slurm/sweep.sh", *words, SEEDS="1 2")
    for task in range(4):
        ended = real_cluster.ended(f"{array}_{task}", seconds=400)
        assert (ended["JobState"], ended["Restarts"]) == ("COMPLETED", "0"), real_cluster.told()
    held_out = {}
    for arm, size in (("baseline", 0), ("reasoning", 293)):
        for seed in (1, 2):
            folder = real_cluster.tree / "out" / f"grpo_{arm}_seed{seed}"
            summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
            assert summary["finished"] and summary["reasoning_vocab_size"] == size
            held_out[arm, seed] = [row["prompt"] for row in rows(folder / "evaluation" / "after.jsonl")]
    assert held_out["baseline", 1] == held_out["reasoning", 1] != held_out["baseline", 2]
    assert held_out["baseline", 2] == held_out["reasoning", 2]


def test_two_processes_that_are_warned_save_one_checkpoint_and_go_on(real_cluster):
    options = ["--gres=gpu:2", "slurm/train_reasoning.sh", *QUICKSTART, "training.max_steps=30", "exp_name=two"]
    options.append("training.use_cpu=true")  # where there is no GPU it has to be asked for
    job = real_cluster.sbatch(*options)
    metrics = real_cluster.tree / "out" / "two" / "metrics.jsonl"
    real_cluster.wait_for_steps(job, metrics, 3)
    real_cluster.warn(job)
    ended = real_cluster.ended(job, seconds=400)
    assert (ended["JobState"], ended["Restarts"]) == ("COMPLETED", "1"), real_cluster.told()
    assert [row["step"] for row in rows(metrics) if "reward" in row] == list(range(1, 31))
