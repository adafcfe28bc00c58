"""The scripts on a real SLURM, with a stand-in that counts steps in place of training."""

import pytest

TRAIN = "slurm/train_baseline.sh"


def test_a_job_that_slurm_warns_saves_requeues_itself_and_goes_on_to_its_end(cluster):
    job = cluster.sbatch(TRAIN, "exp_name=run", "max_steps=40", "overwrite=true", "resume=out/run/checkpoint-1")
    cluster.wait_for_starts("run", 1)
    cluster.warn(job)
    ended = cluster.ended(job)
    assert (ended["JobState"], ended["Restarts"]) == ("COMPLETED", "1"), cluster.told()
    first, second = cluster.events("run", "start")
    assert first["start"] == 0 and 0 < second["start"] < 40
    assert first["words"][-2:] == ["overwrite=true", "resume=out/run/checkpoint-1"]
    assert second["words"] == [*first["words"], "overwrite=false", "resume=auto"]
    assert [event["signal"] for event in cluster.events("run", "signal")] == ["SIGUSR1"]
    log = cluster.tree / "out" / "run" / f"slurm-{job}.log"
    for text in (cluster.own_output(), log.read_text(encoding="utf-8")):
        assert "start 1" in text and "interrupted and saved: requeued" in text and "start 2" in text
    assert f"out/run/slurm-{job}.log" in cluster.own_output()
    assert not list((cluster.tree / "slurm" / "logs").glob("exit-code-*"))


def test_a_job_is_cut_off_by_its_time_limit_and_goes_on(cluster):
    job = cluster.sbatch("--time=1", "--signal=B:USR1@15", TRAIN, "exp_name=run", "max_steps=400")
    ended = cluster.ended(job, seconds=240)
    assert ended["JobState"] == "COMPLETED" and int(ended["Restarts"]) >= 1, cluster.told()
    starts = [event["start"] for event in cluster.events("run", "start")]
    assert starts == sorted(set(starts)) and len(starts) == int(ended["Restarts"]) + 1
    assert {event["signal"] for event in cluster.events("run", "signal")} == {"SIGUSR1"}


@pytest.mark.parametrize(
    ("words", "state", "signal"),
    # The second is what scancel comes to where SLURM follows processes by cgroups: the shell alone gets SIGTERM.
    [([], "CANCELLED", "SIGTERM"), (["--batch", "--signal=TERM"], "FAILED", "SIGUSR1")],
)
def test_a_cancelled_job_saves_and_is_not_requeued(cluster, words, state, signal):
    job = cluster.sbatch(TRAIN, "exp_name=run", "max_steps=400")
    cluster.wait_for_starts("run", 1)
    cluster.type("scancel", *words, job)
    ended = cluster.ended(job)
    assert (ended["JobState"], ended["Restarts"]) == (state, "0"), cluster.told()
    assert [event["signal"] for event in cluster.events("run", "signal")] == [signal]
    assert list((cluster.tree / "out" / "run").glob("checkpoint-*/manifest.json"))


@pytest.mark.parametrize(
    ("options", "ranks"),
    [(["--gres=gpu:2"], 2), (["--nodes=2", "--gres=gpu:2"], 4), (["--nodes=2"], 2)],
    ids=["two GPUs", "two nodes of two", "two nodes of one"],
)
def test_every_rank_is_warned_once_and_the_job_goes_on(cluster, options, ranks):
    job = cluster.sbatch(*options, TRAIN, "exp_name=run", "max_steps=40")
    cluster.wait_for_starts("run", ranks)
    cluster.warn(job)
    ended = cluster.ended(job)
    assert (ended["JobState"], ended["Restarts"]) == ("COMPLETED", "1"), cluster.told()
    starts = cluster.events("run", "start")
    signals = cluster.events("run", "signal")[:ranks]  # later the launcher ends a rank that is slower than the first
    assert sorted(event["rank"] for event in starts) == sorted([*range(ranks)] * 2)
    assert {(event["world"], event["master"]) for event in starts} == {(ranks, "127.0.0.1")}
    assert sorted(event["rank"] for event in signals) == list(range(ranks))
    assert {event["signal"] for event in signals} == {"SIGUSR1"}


@pytest.mark.parametrize("gpus", [1, 2])
def test_a_warning_while_training_starts_up_waits_for_it_to_listen(cluster, gpus):
    job = cluster.sbatch(f"--gres=gpu:{gpus}", TRAIN, "exp_name=run", "max_steps=15", "imports=8")
    cluster.wait_until(lambda: "start 1" in cluster.own_output(), "the start of the job", 30)
    cluster.type("sleep", "2")
    cluster.warn(job)
    ended = cluster.ended(job)
    assert (ended["JobState"], ended["Restarts"]) == ("COMPLETED", "1"), cluster.told()
    signals = [event["signal"] for event in cluster.events("run", "signal")]
    assert signals[:gpus] == ["SIGUSR1"] * gpus
    assert set(signals[gpus:]) <= {"SIGTERM"}  # of the launcher, for a rank that is slower than the first to end


@pytest.mark.parametrize(
    ("partition", "options"), [("main", []), ("grace", ["--nodes=2"])], ids=["at once", "after a time of grace"]
)
def test_a_preempted_job_is_requeued_once_and_goes_on(cluster, partition, options):
    words = [f"--partition={partition}", "--cpus-per-task=16", *options, TRAIN, "exp_name=run", "max_steps=60"]
    job = cluster.sbatch(*words)
    cluster.wait_for_starts("run", 2 if options else 1)
    cluster.sbatch("--partition=urgent", "--nodes=2", "--cpus-per-task=16", "--wrap", "sleep 2")
    ended = cluster.ended(job, seconds=120)
    assert (ended["JobState"], ended["Restarts"]) == ("COMPLETED", "1"), cluster.told()


def test_a_sweep_trains_each_arm_with_each_seed_and_a_task_requeues_itself_alone(cluster):
    array = cluster.sbatch("slurm/sweep.sh", "max_steps=40", SEEDS="1 2")
    runs = {
        f"grpo_{arm}_seed{seed}": (size, seed)
        for arm, size in (("baseline", 0), ("reasoning_full", "full"))
        for seed in (1, 2)
    }
    for run in runs:
        cluster.wait_for_starts(run, 1)
    last = f"{array}_3"
    assert cluster.job(last)["JobId"] == array  # the task that has the job id of the whole array
    cluster.warn(last)
    restarts = [cluster.ended(f"{array}_{task}")["Restarts"] for task in range(4)]
    assert restarts == ["0", "0", "0", "1"], cluster.told()
    for run, (size, seed) in runs.items():
        words = cluster.events(run, "start")[0]["words"]
        assert words[:3] == [f"exp_name={run}", f"model.reasoning_vocab_size={size}", f"seed={seed}"]
    assert (cluster.tree / "out" / "grpo_reasoning_full_seed2" / f"slurm-{last}.log").is_file()
