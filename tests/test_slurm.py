"""The SLURM scripts, without SLURM: stand-ins for sbatch, Python and modules write down what they were called with."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = ("train_baseline.sh", "train_reasoning.sh")
# What the scripts and SLURM read: none of it may come from the machine that runs the tests.
READ = re.compile(
    r"SLURM_.*|(PARTITION|ACCOUNT|TIME|GPUS|CPUS|MEM|MODULES|PROXY|VENV|CONTAINER|ACCELERATE_CONFIG|LAUNCH_PYTHON"
    r"|REASONING_VOCAB_SIZE|https?_proxy|HTTPS?_PROXY)"
)
# One argument a line, so that a space inside an argument can be told from one between two.
RECORDER = '#!/usr/bin/env bash\nprintf "%s\\n" "$@" >"{seen}"\n{more}exit {code}\n'

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="the scripts are for bash")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the scripts in a folder whose name has a space."""
    tree = tmp_path / "a checkout"
    shutil.copytree(ROOT / "slurm", tree / "slurm")
    return tree


@pytest.fixture
def stand_in(tmp_path: Path) -> Callable[..., Path]:
    """Makes a program that records its arguments in `seen-<name>`, one a line, and exits with `code`."""

    def make(name: str, code: int = 0, more: str = "") -> Path:
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(RECORDER.format(seen=tmp_path / f"seen-{name}", more=more, code=code), encoding="utf-8")
        program.chmod(0o755)
        return program

    return make


def run(tree: Path, script: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Start `bash slurm/<script>` with stand-ins first on PATH, from another folder than the tree's."""
    environment = {key: value for key, value in os.environ.items() if not READ.fullmatch(key)}
    environment |= {"PATH": f"{tree.parent / 'bin'}:{environment['PATH']}", **variables}
    command = ["bash", str(tree / "slurm" / script), *words]
    return subprocess.run(command, cwd=tree.parent, env=environment, capture_output=True, text=True)


def job(tree: Path, script: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The same inside a job on one node."""
    return run(tree, script, *words, **{"SLURM_JOB_ID": "40007", "SLURM_JOB_NUM_NODES": "1", **variables})


def seen(tree: Path, name: str) -> list[str]:
    return (tree.parent / f"seen-{name}").read_text(encoding="utf-8").splitlines()


def test_outside_a_job_the_script_submits_itself_with_its_arguments_as_they_stand(
    tree: Path, stand_in: Callable[..., Path]
) -> None:
    stand_in("sbatch")
    words = ["exp_name=two words", 'dataset.system_prompt="Think; then box $x."', "seed=1"]
    done = run(tree, "train_baseline.sh", *words)
    assert done.returncode == 0, done.stderr
    assert seen(tree, "sbatch") == ["slurm/train_baseline.sh", *words]


def test_the_clusters_values_become_options_of_sbatch(tree: Path, stand_in: Callable[..., Path]) -> None:
    stand_in("sbatch")
    values = {"PARTITION": "a100", "ACCOUNT": "lab", "TIME": "1:00:00", "GPUS": "a100:4", "CPUS": "16", "MEM": "64G"}
    run(tree, "train_reasoning.sh", "seed=1", **values)
    options = ["--partition=a100", "--account=lab", "--time=1:00:00", "--gres=gpu:a100:4", "--cpus-per-task=16"]
    assert seen(tree, "sbatch") == [*options, "--mem=64G", "slurm/train_reasoning.sh", "seed=1"]


def test_what_sbatch_says_is_what_the_script_says(tree: Path, stand_in: Callable[..., Path]) -> None:
    stand_in("sbatch", code=7)
    assert run(tree, "train_baseline.sh").returncode == 7


def test_without_slurm_one_line_says_what_to_run_instead(tree: Path, tmp_path: Path) -> None:
    empty = tmp_path / "only"
    empty.mkdir()
    for program in ("bash", "dirname", "basename"):
        (empty / program).symlink_to(str(shutil.which(program)))
    done = run(tree, "train_reasoning.sh", "seed=1", PATH=str(empty))
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert "rlvr_vocab/exp/grpo_train.py model.reasoning_vocab_size=full seed=1" in line


@pytest.mark.parametrize(
    ("script", "variables", "arm"),
    [
        ("train_baseline.sh", {}, "0"),
        ("train_reasoning.sh", {}, "full"),
        ("train_reasoning.sh", {"REASONING_VOCAB_SIZE": "1000"}, "1000"),
    ],
)
def test_a_job_trains_its_arm_with_the_arguments_as_they_stand(
    tree: Path, stand_in: Callable[..., Path], script: str, variables: dict[str, str], arm: str
) -> None:
    python = stand_in("some python")
    words = ["exp_name=two words", "model.source_ids=[1,2]", "training.max_steps=3"]
    done = job(tree, script, *words, LAUNCH_PYTHON=str(python), **variables)
    assert done.returncode == 0, done.stderr
    expected = ["rlvr_vocab/exp/grpo_train.py", f"model.reasoning_vocab_size={arm}", *words]
    assert seen(tree, "some python") == expected


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_exit_code_of_training_is_that_of_the_job(tree: Path, stand_in: Callable[..., Path], script: str) -> None:
    for code in (0, 2, 130):
        assert job(tree, script, LAUNCH_PYTHON=str(stand_in("python", code))).returncode == code


@pytest.mark.parametrize("variables", [{"GPUS": "2"}, {"GPUS": "a100:2"}, {"SLURM_GPUS_ON_NODE": "2"}])
def test_two_gpus_start_through_accelerate(
    tree: Path, stand_in: Callable[..., Path], variables: dict[str, str]
) -> None:
    done = job(tree, "train_baseline.sh", "seed=3", LAUNCH_PYTHON=str(stand_in("python")), **variables)
    assert done.returncode == 0, done.stderr
    words = seen(tree, "python")
    assert words[:4] == ["-m", "accelerate.commands.launch", "--num_processes", "2"]
    assert "--multi_gpu" in words
    assert words[-3:] == ["rlvr_vocab/exp/grpo_train.py", "model.reasoning_vocab_size=0", "seed=3"]


def test_an_accelerate_file_takes_the_place_of_the_launchers_own_options(
    tree: Path, stand_in: Callable[..., Path]
) -> None:
    job(
        tree, "train_baseline.sh", GPUS="4", ACCELERATE_CONFIG="my fsdp.yaml", LAUNCH_PYTHON=str(stand_in("python"))
    )  # fmt: skip
    words = seen(tree, "python")
    assert words[words.index("--config_file") + 1] == "my fsdp.yaml" and "--multi_gpu" not in words


def test_two_jobs_on_one_node_have_different_ports(tree: Path, stand_in: Callable[..., Path]) -> None:
    python, ports = str(stand_in("python")), []
    for job_id in ("40007", "40008"):
        job(tree, "train_baseline.sh", GPUS="2", LAUNCH_PYTHON=python, SLURM_JOB_ID=job_id)
        words = seen(tree, "python")
        ports.append(int(words[words.index("--main_process_port") + 1]))
    assert ports[0] != ports[1] and all(1024 < port < 65536 for port in ports)


def test_one_gpu_starts_without_accelerate(tree: Path, stand_in: Callable[..., Path]) -> None:
    job(tree, "train_baseline.sh", SLURM_GPUS_ON_NODE="1", LAUNCH_PYTHON=str(stand_in("python")))
    assert seen(tree, "python")[0] == "rlvr_vocab/exp/grpo_train.py"


def test_a_script_that_sbatch_copied_elsewhere_finds_its_launcher(
    tree: Path, stand_in: Callable[..., Path], tmp_path: Path
) -> None:
    spool = tmp_path / "spool" / "slurm"
    spool.mkdir(parents=True)
    shutil.copy(tree / "slurm" / "train_baseline.sh", spool)
    python = str(stand_in("python", more=f'pwd >"{tmp_path / "where"}"\n'))
    done = job(spool.parent, "train_baseline.sh", SLURM_SUBMIT_DIR=str(tree), LAUNCH_PYTHON=python)
    assert done.returncode == 0, done.stderr
    assert Path((tmp_path / "where").read_text().strip()) == tree


def test_the_environment_of_make_setup_is_used_and_its_absence_said(tree: Path, stand_in: Callable[..., Path]) -> None:
    done = job(tree, "train_baseline.sh")
    assert done.returncode == 2 and "make setup" in done.stderr
    (tree / ".venv" / "bin").mkdir(parents=True)
    (tree / ".venv" / "bin" / "python").symlink_to(stand_in("python"))
    assert job(tree, "train_baseline.sh").returncode == 0
    assert seen(tree, "python") == ["rlvr_vocab/exp/grpo_train.py", "model.reasoning_vocab_size=0"]


def test_a_proxy_reaches_training_under_both_spellings(
    tree: Path, stand_in: Callable[..., Path], tmp_path: Path
) -> None:
    python = str(stand_in("python", more=f'echo "$https_proxy $HTTP_PROXY" >"{tmp_path / "proxy"}"\n'))
    job(tree, "train_baseline.sh", PROXY="http://proxy:3128", LAUNCH_PYTHON=python)
    assert (tmp_path / "proxy").read_text().split() == ["http://proxy:3128"] * 2


def test_several_nodes_and_values_that_came_too_late_are_said(tree: Path, stand_in: Callable[..., Path]) -> None:
    python = str(stand_in("python"))
    done = job(tree, "train_baseline.sh", SLURM_JOB_NUM_NODES="2", LAUNCH_PYTHON=python)
    assert done.returncode == 2 and "one node" in done.stderr
    done = job(tree, "train_baseline.sh", PARTITION="a100", SLURM_JOB_PARTITION="cpu", LAUNCH_PYTHON=python)
    assert done.returncode == 0 and "PARTITION=a100 had no effect" in done.stderr


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_log_folder_that_a_script_names_is_part_of_the_repository(script: str) -> None:
    # SLURM does not make it: the job would vanish without a word.
    text = (ROOT / "slurm" / script).read_text(encoding="utf-8")
    [log] = re.findall(r"^#SBATCH --output=(\S+)$", text, re.MULTILINE)
    assert (ROOT / log).parent.joinpath(".gitignore").is_file()


def test_the_examples_in_the_scripts_heads_would_be_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlvr_vocab.exp import environment_checks
    from rlvr_vocab.exp.settings import build_settings
    from rlvr_vocab.exp.vllm_checks import check_vllm

    monkeypatch.setattr(environment_checks, "installed", lambda package: True)
    for script, arm in zip(SCRIPTS, ("0", "full"), strict=True):
        text = (ROOT / "slurm" / script).read_text(encoding="utf-8")
        [example] = re.findall(rf"^# .*bash slurm/{script} (.*)$", text, re.MULTILINE)
        settings = build_settings("train", [f"model.reasoning_vocab_size={arm}", *shlex.split(example)])
        reasoning = settings.model.reasoning_vocab_size != 0  # type: ignore[union-attr]
        check_vllm(settings.training.grpo, reasoning=reasoning)  # type: ignore[union-attr]
