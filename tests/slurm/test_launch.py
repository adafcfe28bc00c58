"""How the scripts are sent off, what they make of a cluster's values, and how they start training on its nodes."""

import dataclasses
import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_outside_a_job_the_script_submits_itself_with_its_arguments_as_they_stand(scripts):
    scripts.stand_in("sbatch")
    words = ["exp_name=two words", 'dataset.system_prompt="Think; then box $x."', "seed=1"]
    done = scripts.run("train_baseline.sh", *words)
    assert done.returncode == 0, done.stderr
    assert scripts.seen("sbatch") == ["slurm/train_baseline.sh", *words]


def test_the_clusters_values_become_options_of_sbatch(scripts):
    scripts.stand_in("sbatch")
    values = {"PARTITION": "a100", "ACCOUNT": "lab", "TIME": "1:00:00", "NODES": "2", "GPUS": "a100:4"}
    scripts.run("train_reasoning.sh", "seed=1", **values, CPUS="16", MEM="64G")
    options = ["--partition=a100", "--account=lab", "--time=1:00:00", "--nodes=2", "--gres=gpu:a100:4"]
    assert scripts.seen("sbatch") == [*options, "--cpus-per-task=16", "--mem=64G", "slurm/train_reasoning.sh", "seed=1"]


@pytest.mark.parametrize(
    ("script", "variables", "arm"),
    [
        ("train_baseline.sh", {}, "0"),
        ("train_reasoning.sh", {"REASONING_VOCAB_SIZE": "1000"}, "1000"),
        ("train_reasoning.sh", {}, "151646"),
    ],
)
def test_a_job_trains_its_arm_with_the_arguments_as_they_stand(scripts, script, variables, arm):
    python = scripts.stand_in("some python")
    words = ["exp_name=two words", "model.source_ids=[1,2]", "training.max_steps=3"]
    done = scripts.job(script, *words, LAUNCH_PYTHON=str(python), **variables)
    assert done.returncode == 0, done.stderr
    expected = ["rlvr_vocab/exp/grpo_train.py", f"model.reasoning_vocab_size={arm}", *words]
    assert scripts.seen("some python") == expected


@pytest.mark.parametrize("variables", [{"GPUS": "a100:2"}, {"SLURM_GPUS_ON_NODE": "2"}])
def test_two_gpus_start_through_accelerate_on_a_port_of_the_jobs_own(scripts, variables):
    words, python = [], str(scripts.stand_in("python"))
    for more in ({"SLURM_JOB_ID": "40008", "ACCELERATE_CONFIG": "my fsdp.yaml"}, {"SLURM_JOB_ID": "40007"}):
        done = scripts.job("train_baseline.sh", "seed=3", LAUNCH_PYTHON=python, **variables, **more)
        assert done.returncode == 0, done.stderr
        words.append(scripts.seen("python"))
    assert words[1][:4] == ["-m", "accelerate.commands.launch", "--num_processes", "2"]
    assert words[1][-3:] == ["rlvr_vocab/exp/grpo_train.py", "model.reasoning_vocab_size=0", "seed=3"]
    assert "--multi_gpu" in words[1] and "--multi_gpu" not in words[0]
    assert words[0][words[0].index("--config_file") + 1] == "my fsdp.yaml"
    ports = [int(each[each.index("--main_process_port") + 1]) for each in words]
    assert ports[0] != ports[1] and all(1024 < port < 65536 for port in ports)


def test_a_script_that_sbatch_copied_elsewhere_finds_its_launcher(scripts, tmp_path):
    spool = tmp_path / "spool" / "slurm"
    spool.mkdir(parents=True)
    shutil.copy(scripts.tree / "slurm" / "train_baseline.sh", spool)
    python = str(scripts.stand_in("python", more=f'pwd >"{tmp_path / "where"}"\n'))
    done = dataclasses.replace(scripts, tree=spool.parent).job(
        "train_baseline.sh", SLURM_SUBMIT_DIR=str(scripts.tree), LAUNCH_PYTHON=python
    )
    assert done.returncode == 0, done.stderr
    assert Path((tmp_path / "where").read_text().strip()) == scripts.tree


def test_the_environment_of_make_setup_is_used_and_its_absence_said(scripts):
    done = scripts.job("train_baseline.sh")
    assert done.returncode == 2 and "make setup" in done.stderr
    (scripts.tree / ".venv" / "bin").mkdir(parents=True)
    (scripts.tree / ".venv" / "bin" / "python").symlink_to(scripts.stand_in("python"))
    assert scripts.job("train_baseline.sh").returncode == 0
    assert scripts.seen("python") == ["rlvr_vocab/exp/grpo_train.py", "model.reasoning_vocab_size=0"]


def test_on_several_nodes_srun_starts_one_launcher_on_each_with_the_first_nodes_address(scripts):
    scripts.scontrol()
    scripts.stand_in("srun", more='while [[ "$1" == --* ]]; do shift; done\nSLURM_NODEID=1 "$@" || exit\n')
    variables = {"SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "x[1-2]", "SLURM_GPUS_ON_NODE": "4"}
    done = scripts.job("train_baseline.sh", "seed=3", LAUNCH_PYTHON=str(scripts.stand_in("python")), **variables)
    assert done.returncode == 0, done.stderr
    options = scripts.seen("srun")
    assert {"--nodes=2", "--ntasks=2", "--ntasks-per-node=1"} <= set(options)
    words = scripts.seen("python")
    given = {word: words[number + 1] for number, word in enumerate(words) if word.startswith("--m") or "num" in word}
    assert (given["--num_processes"], given["--num_machines"], given["--machine_rank"]) == ("8", "2", "1")
    assert (given["--main_process_ip"], given["--main_process_port"]) == ("10.0.0.7", "20007")
    assert words[-3:] == ["rlvr_vocab/exp/grpo_train.py", "model.reasoning_vocab_size=0", "seed=3"]


@pytest.mark.parametrize("script", ["train_baseline.sh", "train_reasoning.sh", "sweep.sh"])
def test_a_script_asks_for_the_warning_and_may_be_requeued_into_the_same_log(script):
    text = (ROOT / "slurm" / script).read_text(encoding="utf-8")
    wanted = {"#SBATCH --signal=B:USR1@300", "#SBATCH --requeue", "#SBATCH --open-mode=append"}
    assert wanted | {"#SBATCH --ntasks-per-node=1"} <= set(text.splitlines())
    [log] = re.findall(r"^#SBATCH --output=(\S+)$", text, re.MULTILINE)
    assert (ROOT / log).parent.joinpath(".gitignore").is_file()  # SLURM makes no folder: the job would vanish


def test_a_time_limit_can_be_left_to_plan(scripts):
    scripts.stand_in("sbatch")
    asked = (
        f'[[ " $* " != *" plan "* ]] || {{ echo "$*" >"{scripts.tree.parent / "asked"}"; echo 0-02:15:00; exit; }}\n'
    )
    python = str(scripts.stand_in("python", more=asked))
    told = {"TIME": "auto", "GPUS": "a100:2", "LAUNCH_PYTHON": python}
    done = scripts.run("train_baseline.sh", "seed=3", CARD="l4", **told)
    assert done.returncode == 0, done.stderr
    assert "--time=0-02:15:00" in scripts.seen("sbatch")
    words = "plan model.reasoning_vocab_size=0 seed=3 gpu=l4 gpus=2 format=slurm_time"
    assert words in (scripts.tree.parent / "asked").read_text()
    scripts.run("train_baseline.sh", CARD="l4", ACCELERATE_CONFIG="accelerate_configs/fsdp2.yaml", **told)
    assert "gpus=2 sharding=fsdp2 format" in (scripts.tree.parent / "asked").read_text()
    refused = scripts.run("train_baseline.sh", **told)
    assert refused.returncode == 2 and "CARD=a100_40" in refused.stderr
