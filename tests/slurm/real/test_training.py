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
