"""Small runs of the quickstart that are killed, told to stop or damaged, beside one that nobody disturbs.

Every test here asks the same: does the next start go on, and does it end with what the undisturbed run ended with?
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

# Of these tests `make test` runs one kill, one damage of a checkpoint and one of a record, and one signal.
QUICK = (
    "test_killed_before_a_change_of_a_file[os.rename .saving/checkpoint-4]",
    "test_a_run_goes_on_from_what_is_whole",
    "test_the_step_is_finished_and_saved_and_the_last_line_says_so",
)

LENGTH = "{name:length,params:{longest:1,falloff:300,unit:characters}}"
# Rewards that differ within a group, whatever a model says that has learned nothing yet; a checkpoint at every step.
SMALL = (
    *("report=false", "training.eval_steps=null", "warmup.max_steps=2", "warmup.check_every=2"),
    *("warmup.num_check_problems=4", "dataset.generator.num_problems=300", "dataset.max_eval_samples=4"),
    *("training.per_device_train_batch_size=8", "training.num_generations=4", "training.max_completion_length=12"),
    *("training.learning_rate=1e-2", "training.kl_log_steps=0", "training.max_steps=6"),
    *("training.save_strategy=steps", "training.save_steps=1", "training.save_total_limit=2"),
    f"rewards=[{LENGTH},accuracy]",
)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent == Path(__file__).parent and item.name not in QUICK:
            item.add_marker("slow")


@dataclass(frozen=True)
class Outcome:
    """What must be the same however often a run was stopped, but for times."""

    weights: dict[str, str]
    rows: list[dict]
    completions: dict[str, str]
    held_out: dict[str, str]


def read_outcome(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    finals = [path for name in ("final_model", "final_adapter") for path in (folder / name).rglob("*.safetensors")]
    measured = ("step_time", "time/", "memory/")
    tables = sorted((folder / "completions").iterdir())
    return Outcome(
        {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(finals)},
        [{key: value for key, value in row.items() if not key.startswith(measured)} for row in rows],
        {path.name: pd.read_parquet(path).to_json() for path in tables},
        {path.name: path.read_bytes().hex() for path in (folder / "evaluation").glob("step_*.jsonl")},
    )


@pytest.fixture(scope="session")
def outcome_of():
    return read_outcome


class Forks:
    """Runs commands in forks of one process; see fork_server.py."""

    def __init__(self, folder):
        self._folder = folder
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "RLVR_VOCAB_CACHE": str(folder / "cache")}
        server = Path(__file__).with_name("fork_server.py")
        self._process = subprocess.Popen(
            [sys.executable, server], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def run(self, folder, *words, **request):
        """The exit code of a quickstart in `folder`, negative for a signal."""
        assert self._process.stdin is not None and self._process.stdout is not None
        request |= {
            "words": ["quickstart", f"output_dir={folder}", *SMALL, *words],
            "log": str(self._beside(folder, "log")),
            "events": str(self._beside(folder, "events")),
            "watched": str(folder),
        }
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def said(self, folder):
        """What the runs in a folder said, one after the other."""
        return self._beside(folder, "log").read_text()

    def changes(self, folder):
        """The changes of files by the last run in a folder, in their order."""
        return self._beside(folder, "events").read_text().splitlines()

    def _beside(self, folder, kind):
        return self._folder / f"{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}.{kind}"

    def close(self):
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@pytest.fixture(scope="session")
def forks(tmp_path_factory):
    server = Forks(tmp_path_factory.mktemp("forks"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def undisturbed(forks, tmp_path_factory):
    """The finished run of given words, made at the first call."""
    root = tmp_path_factory.mktemp("undisturbed")
    made = {}

    def run(*words):
        if words not in made:
            folder = root / str(len(made))
            assert forks.run(folder, *words) == 0, forks.said(folder)
            made[words] = folder
        return made[words]

    return run


@pytest.fixture
def unfinished(undisturbed, tmp_path):
    """A copy of a run that was killed after its last checkpoint, before anything came of it."""
    folder = tmp_path / "run"
    shutil.copytree(undisturbed(), folder)
    (folder / "summary.json").unlink()
    shutil.rmtree(folder / "final_model")
    (folder / "evaluation" / "after.jsonl").unlink()
    return folder
