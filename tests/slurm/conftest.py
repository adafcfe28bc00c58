"""The SLURM scripts, without SLURM: stand-ins for its commands and for Python write down what they were called with."""

import dataclasses
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What the scripts and SLURM read: none of it may come from the machine that runs the tests.
READ = re.compile(
    r"SLURM_.*|SBATCH_.*|(PARTITION|ACCOUNT|TIME|NODES|GPUS|CPUS|MEM|MODULES|PROXY|VENV|CONTAINER|ACCELERATE_CONFIG|CARD"
    r"|LAUNCH_PYTHON|REASONING_VOCAB_SIZE|ARMS|SEEDS|RLVR_VOCAB_EXIT_CODE_FILE|https?_proxy|HTTPS?_PROXY)"
)
# One argument a line, so that a space inside an argument can be told from one between two. As Python it is asked first
# where the run goes, and which runs a sweep has: that the real one answers.
RECORDER = f"""#!/usr/bin/env bash
[[ " $* " != *" --show output_dir "* ]] || {{{{ echo "out/a run"; exit; }}}}
[[ " $* " != *" --show exp_name "* ]] || {{{{ cd "{ROOT}" && exec "{sys.executable}" "$@"; }}}}
printf "%s\\n" "$@" >"{{seen}}"
{{more}}exit {{code}}
"""
# SLURM's word on a job, and on a node whose name the network does not know.
SCONTROL = """#!/usr/bin/env bash
case "$1 $2" in
  "show job") echo "JobId=$3 JobState={state} Reason={reason} PreemptTime={preempted}" ;;
  "show hostnames") printf "%s\\n" first second ;;
  "show node") echo "NodeName=$3 NodeAddr=10.0.0.7 NodeHostName=$3" ;;
  *) echo "$*" >>"{seen}" ;;
esac
"""


# Of these tests `make test` runs a submission, a job, a requeue and a sweep.
QUICK = (
    "test_outside_a_job_the_script_submits_itself_with_its_arguments_as_they_stand",
    "test_a_job_trains_its_arm_with_the_arguments_as_they_stand",
    "test_an_interrupted_run_is_requeued_by_the_name_that_is_its_own",
    "test_each_task_of_a_sweep_is_one_of_the_runs_of_multirun",
)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.name.partition("[")[0] not in QUICK:
            item.add_marker("slow")


@dataclasses.dataclass(frozen=True)
class Scripts:
    """A copy of the scripts, and stand-ins that come first on their PATH."""

    tree: Path
    in_a_job: dict[str, str]

    def stand_in(self, name, code=0, more=""):
        return self._program(name, RECORDER.format(seen=self._beside(f"seen-{name}"), more=more, code=code))

    def scontrol(self, state="RUNNING", reason="None", preempted="None"):
        """An scontrol that knows the state of a job; the file in which it records every other order."""
        orders = self._beside("orders")
        orders.write_text("", encoding="utf-8")
        self._program("scontrol", SCONTROL.format(state=state, reason=reason, preempted=preempted, seen=orders))
        return orders

    def seen(self, name):
        return self._beside(f"seen-{name}").read_text(encoding="utf-8").splitlines()

    def log(self, name="slurm-40007.log"):
        return (self.tree / "out" / "a run" / name).read_text(encoding="utf-8")

    def started(self, script, *words, cwd=None, **variables):
        environment = {key: value for key, value in os.environ.items() if not READ.fullmatch(key)}
        environment |= {"PATH": f"{self._beside('bin')}:{environment['PATH']}", **variables}
        command = ["bash", str(self.tree / "slurm" / script), *words]
        return subprocess.Popen(
            command,
            cwd=cwd or self.tree.parent,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def ended(self, process):
        out, error = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, error)

    def run(self, script, *words, **variables):
        return self.ended(self.started(script, *words, **variables))

    def job(self, script, *words, **variables):
        """The same inside a job on one node."""
        return self.run(script, *words, **{**self.in_a_job, **variables})

    def _program(self, name, text):
        program = self._beside("bin") / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)
        return program

    def _beside(self, name):
        return self.tree.parent / name


@pytest.fixture
def scripts(tmp_path):
    """The scripts in a folder whose name has a space."""
    if shutil.which("bash") is None:
        pytest.skip("the scripts are for bash")
    tree = tmp_path / "a checkout"
    shutil.copytree(ROOT / "slurm", tree / "slurm", ignore=shutil.ignore_patterns("*.log", "exit-code-*"))
    return Scripts(tree, {"SLURM_JOB_ID": "40007", "SLURM_JOB_NUM_NODES": "1"})
