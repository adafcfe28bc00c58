"""A real SLURM of two nodes with two made-up GPUs each, all of it on this machine, for as long as the tests run."""

import dataclasses
import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from tests.slurm.conftest import READ, ROOT

DAEMONS = ("munged", "slurmctld", "slurmd")
# A requeued job may begin after cred_expire seconds: two minutes, where nothing is set.
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
KillWait=10
OverTimeLimit=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=sched_interval=2,bf_interval=5
GresTypes=gpu
SlurmdParameters=config_overrides
NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{ports[1]}-{ports[2]}] CPUs=16 RealMemory=131072 Gres=gpu:2
PartitionName=main Nodes=n[1-2] Default=YES MaxTime=INFINITE PriorityTier=1
PartitionName=grace Nodes=n[1-2] MaxTime=INFINITE PriorityTier=1 GraceTime=60
PartitionName=urgent Nodes=n[1-2] MaxTime=INFINITE PriorityTier=9 PreemptMode=OFF
"""
MADE_UP_GPUS = "AutoDetect=off\nNodeName=n[1-2] Name=gpu File=/dev/null,/dev/zero\n"


@dataclasses.dataclass(frozen=True)
class Cluster:
    environment: dict[str, str]
    tree: Path

    def type(self, *words, **variables):
        environment = self.environment | variables
        done = subprocess.run(words, cwd=self.tree, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def sbatch(self, *words, **variables):
        return self.type("sbatch", "--parsable", *words, **variables)

    def warn(self, job):
        self.type("scancel", "--batch", "--signal=USR1", job)

    def job(self, job):
        shown = self.type("scontrol", "show", "job", "--oneliner", job)
        return dict(field.split("=", 1) for field in shown.split() if "=" in field)

    def ended(self, job, seconds=90):
        ends = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        self.wait_until(lambda: self.job(job)["JobState"] in ends, f"the end of job {job}", seconds)
        return self.job(job)

    def own_output(self):
        return "".join(path.read_text(encoding="utf-8") for path in sorted((self.tree / "slurm/logs").glob("*.log")))

    def events(self, run, *keys):
        file = self.tree / "out" / run / "events.jsonl"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return [event for event in map(json.loads, lines) if any(key in event for key in keys)]

    def wait_for_starts(self, run, number):
        self.wait_until(lambda: len(self.events(run, "start")) >= number, f"{number} starts of {run}", 60)

    def wait_until(self, holds, what, seconds):
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, f"waited {seconds:g} s for {what}:\n{self.told()}"
            time.sleep(0.5)

    def told(self):
        logs = sorted(self.tree.glob("out/*/slurm-*.log"))
        return "\n".join([self.type("squeue"), self.own_output(), *(path.read_text() for path in logs)])

    def nothing_left(self):
        self.type("scancel", f"--user={getpass.getuser()}")
        self.wait_until(lambda: not self.type("squeue", "--noheader"), "an empty queue", 60)


@pytest.fixture(scope="session")
def slurm_environment():
    """The environment of a user of the cluster, which runs as long as the tests of this folder do."""
    if os.environ.get("RLVR_VOCAB_TEST_SLURM") != "1":
        pytest.skip("a SLURM of its own, and minutes: make test-slurm")
    missing = [daemon for daemon in DAEMONS if shutil.which(daemon) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: Debian's packages slurmctld slurmd slurm-client munge")
    kept = {key: value for key, value in os.environ.items() if not READ.fullmatch(key)}
    with ExitStack() as stack:
        # Short, and open to look into: a socket's path has 108 characters, and munged wants to see it reachable.
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp", ignore_cleanup_errors=True))
        )
        folder.chmod(0o755)
        environment = kept | {
            "SLURM_CONF": str(write_configuration(folder)),
            "VENV": sys.prefix,
            "OMP_NUM_THREADS": "1",
            "WANDB_MODE": "disabled",
        }
        for name, command in daemons(folder).items():
            stack.enter_context(running(command, folder / f"{name}.log", environment))
            if name == "munged":
                wait_for(lambda: (folder / "munge.sock").exists(), folder)
        wait_for(lambda: idle_nodes(environment) == 2, folder)
        yield environment


def write_configuration(folder):
    host, user = socket.gethostname().split(".")[0], getpass.getuser()
    text = CONFIGURATION.format(folder=folder, host=host, user=user, ports=three_free_ports())
    (folder / "slurm.conf").write_text(text, encoding="utf-8")
    (folder / "gres.conf").write_text(MADE_UP_GPUS, encoding="utf-8")
    (folder / "state").mkdir()
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    return folder / "slurm.conf"


def three_free_ports():
    for first in range(27000, 29000, 3):
        ports = [first, first + 1, first + 2]
        with ExitStack() as stack:
            try:
                for port in ports:
                    stack.enter_context(closing(socket.socket())).bind(("127.0.0.1", port))
            except OSError:
                continue
            return ports
    raise RuntimeError("no three ports in a row are free between 27000 and 29000")


def daemons(folder):
    files = {"key-file": "key", "socket": "sock", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    return {
        "munged": ["munged", "--foreground", *(f"--{option}={folder}/munge.{end}" for option, end in files.items())],
        "slurmctld": ["slurmctld", "-D", "-c"],
        "slurmd-n1": ["slurmd", "-D", "-N", "n1"],
        "slurmd-n2": ["slurmd", "-D", "-N", "n2"],
    }


@contextmanager
def running(command, log, environment):
    with log.open("wb") as file, subprocess.Popen(command, env=environment, stdout=file, stderr=file) as daemon:
        try:
            yield
        finally:
            daemon.terminate()


def idle_nodes(environment):
    command = ["sinfo", "--noheader", "--Node", "--partition=main", "--states=idle"]
    return len(subprocess.run(command, env=environment, capture_output=True, text=True).stdout.splitlines())


def wait_for(holds, folder):
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end, "\n".join(path.read_text()[-2000:] for path in sorted(folder.glob("*.log")))
        time.sleep(0.2)


@pytest.fixture
def cluster(slurm_environment, tmp_path):
    """The cluster, in a tree whose trainer is the stand-in."""
    tree = tmp_path / "a checkout"
    (tree / "rlvr_vocab" / "exp").mkdir(parents=True)
    shutil.copy(Path(__file__).parents[1] / "trainer.py", tree / "rlvr_vocab" / "exp" / "grpo_train.py")
    shutil.copytree(ROOT / "slurm", tree / "slurm", ignore=shutil.ignore_patterns("*.log"))
    cluster = Cluster(slurm_environment, tree)
    yield cluster
    cluster.nothing_left()
