"""The folder of a run: its lock, the records written at its start, and the run as read from it. No torch."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

from rich.console import Console

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import ABSENT, CODE, config_yaml, differences, read_recorded
from rlvr_vocab.config.sections import RewardSettings, RunSettings, stages_of
from rlvr_vocab.config.values import leaves, read
from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_write, json_text, read_json_if_there
from rlvr_vocab.record.files import (
    CHANGES,
    CONFIG,
    ENVIRONMENT,
    FINAL_ADAPTER,
    FINAL_MODEL,
    INITIAL_MODEL,
    METRICS,
    PROBLEMS,
    SUMMARY,
    SYSTEM_PROMPT_USED,
    parents_of,
    run_folder_of,
)
from rlvr_vocab.record.metrics import RewardFact, RunFacts, RunRecord, is_step_row, read_metrics
from rlvr_vocab.record.results import read_thought_reading
from rlvr_vocab.rewards.build import logged_names
from rlvr_vocab.rewards.reward import traits_by_name
from rlvr_vocab.secrets import without_secrets
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout
from rlvr_vocab.vocab.refuse_off_policy import truncation_of

logger = logging.getLogger(__name__)

LOCK = ".lock"
_RETRY_SECONDS = 0.5
# The lock, a scheduler's log, a leftover of a killed start: these may exist before a run and remain after it.
NOT_OF_A_RUN = re.compile(r"slurm-.*\.log|\.config\.yaml\.partial|" + re.escape(LOCK))


@dataclass(frozen=True)
class Run:
    """A run whose folder and initial model exist; created once and passed to all later steps."""

    settings: RunSettings
    layout: VocabLayout
    console: Console

    @property
    def folder(self) -> Path:
        return self.settings.output_dir

    @property
    def initial_model(self) -> Path:
        return self.folder / INITIAL_MODEL


# --- the lock ---


def check_not_running(folder: Path) -> None:
    """Raises UserError, with the process named, if another process is writing the folder; leaves no file there."""
    if (folder / LOCK).is_file():
        with only_writer(folder):
            pass


@contextmanager
def only_writer(folder: Path, key: str = "output_dir", waiting: Callable[[str], None] | None = None) -> Iterator[None]:
    """A block that one process at a time can enter for a folder, on any machine; a dead process holds no lock.

    `waiting` is called once with the holder of the lock, before waiting for it; without, UserError names the holder.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    reported = False
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = (folder / LOCK).open("a+", encoding="utf-8")
        except FileNotFoundError:  # the last holder has just removed the folder
            continue
        except OSError as error:
            raise UserError(f"{key}={folder} cannot be written: {error.strerror or error}") from error
        holder = _try_to_lock(file)
        if holder is None and _is_still_there(file, folder):
            break
        file.close()
        if holder is not None and waiting is None:
            raise UserError(f"{key}={folder}: {holder}; wait for it, stop it, or choose another {key}")
        if holder is not None and waiting is not None:
            if not reported:
                waiting(holder)
            reported = True
            time.sleep(_RETRY_SECONDS)
    with file:
        file.truncate(0)
        started = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        job = f" (SLURM job {os.environ['SLURM_JOB_ID']})" if "SLURM_JOB_ID" in os.environ else ""
        file.write(f"process {os.getpid()} on {socket.gethostname()}{job} has been writing it since {started}")
        file.flush()
        try:
            yield
        finally:
            (folder / LOCK).unlink(missing_ok=True)
            with suppress(OSError):  # not empty: the run has begun
                for path in made:
                    path.rmdir()


def _try_to_lock(file: IO[str]) -> str | None:
    """Lock the file; returns the holder if another process has locked it."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # unlike `flock`, not inherited by children
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            file.seek(0)
            return file.read() or "another process has just started to write it"
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        logger.warning("%s: this file system has no locks; start no second job on this folder", file.name)
    return None


def _is_still_there(file: IO[str], folder: Path) -> bool:
    """Whether the file is still in the folder; its last holder may have removed it before this lock."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), (folder / LOCK).stat())
    except FileNotFoundError:
        return False


# --- the records written at the start ---


def changes_of(settings: RunSettings) -> list[tuple[str, Any, Any]]:
    """(key, recorded value, new value) of each key, and each file of code, that differs from the recorded ones."""
    recorded = {CODE: {}, **read_recorded(settings.output_dir, resolve=True)}
    changes = differences(recorded, {CODE: {}, **settings.resolved})
    return [each for each in changes if not (each[0].startswith(f"{CODE}.") and ABSENT in each)]  # a key names it


def results_file(folder: Path, when: str) -> Path:
    """The file of the held-out answers of a run; `when` is `before`, `after` or a step."""
    return folder / "evaluation" / f"{when}.jsonl"


def start_run_folder(settings: RunSettings) -> None:
    """Create the folder and write configuration and environment; with `overwrite`, remove an earlier run first."""
    folder, here = settings.output_dir, environment()
    if (folder / CONFIG).is_file():
        if settings.overwrite:
            _clear(folder)
        else:
            before = (read_json_if_there(folder / ENVIRONMENT) or {}).get("threads")
            if before not in (None, here["threads"]) and not here["gpus"]:  # sums have another order
                threads = f"the run started with {before} threads and resumes with {here['threads']}"
                logger.warning("%s: its last digits will be others; OMP_NUM_THREADS=%s keeps them", threads, before)
            for name in (INITIAL_MODEL, FINAL_ADAPTER, FINAL_MODEL):  # partly written by a killed process
                for path in folder.glob(f".{name}.*"):
                    shutil.rmtree(path)
            _record_changes(settings)
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / CONFIG, config_yaml(settings.resolved))  # marks the folder as a run
    atomic_write(folder / ENVIRONMENT, json_text(here))


def _clear(folder: Path) -> None:
    """Remove an earlier run, checkpoints first, config.yaml last: if killed in between, it is an unfinished run."""
    (folder / SUMMARY).unlink(missing_ok=True)
    others = [path for path in folder.iterdir() if not NOT_OF_A_RUN.fullmatch(path.name)]
    others.sort(key=lambda path: (path.name == CONFIG, not path.name.startswith(("checkpoint-", "stages"))))
    for path in others:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _record_changes(settings: RunSettings) -> None:
    """Append the changed keys to `changes.jsonl`; for a finished run, rename its summary and last results."""
    folder, changes = settings.output_dir, changes_of(settings)
    summary = read_json_if_there(folder / SUMMARY) if changes or settings.resume != "auto" else None
    if summary is not None:
        for path in (results_file(folder, "after"), folder / SUMMARY):
            if path.exists():
                path.rename(path.with_stem(f"{path.stem}_{summary['steps']}_steps"))
    if changes:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        rows = ({"at": now, "key": key, "from": there, "to": here} for key, there, here in changes)
        with (folder / CHANGES).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row, default=str) + "\n" for row in rows)


_PACKAGES = (
    *("rlvr-vocab", "torch", "transformers", "trl", "accelerate", "peft", "datasets", "mpmath", "sympy"),
    *("latex2sympy2-extended", "bitsandbytes", "vllm"),
)


def environment() -> dict[str, Any]:
    """Versions, commit, hardware and command line."""
    import torch  # here, because the checks of a command line import this module and must not import torch

    root = Path(__file__).parents[2]
    commit = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    installed = {}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            installed[package] = version(package)
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": [without_secrets(word) for word in sys.argv],
        "commit": commit.stdout.strip() or None,  # None outside a git checkout
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor_cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        "versions": installed,
    }


# --- a run as read from its folder ---


def run_record(folder: Path) -> RunRecord:
    """The facts, rows and summary of the run in a folder; UserError for a file that cannot be read."""
    logged = read_metrics(folder / METRICS)
    facts = run_facts(read_recorded(folder, resolve=True), folder)
    summary = read_json_if_there(folder / SUMMARY)
    if summary is not None and "finished" not in summary:
        raise UserError(f"{folder / SUMMARY} is damaged: it has no field 'finished'")
    rows, evaluations = filter(is_step_row, logged), (row for row in logged if not is_step_row(row))
    thoughts = (read_thought_reading(folder) or {"rewards": ()})["rewards"]
    return RunRecord(folder, facts, tuple(rows), tuple(evaluations), summary, thoughts)


def run_facts(config: Mapping[str, Any], folder: Path) -> RunFacts:
    """The facts of a run, and of each of its stages, from its resolved configuration and its folder."""
    stages = []
    for stage in config.get("stages") or ():
        over: dict[str, Any] = {key: {**config[key], **stage[key]} for key in ("training", "dataset") if stage.get(key)}
        over |= {"rewards": stage.get("rewards") or config.get("rewards"), "stages": None}
        stages.append(replace(run_facts({**config, **over}, folder), stage=stage["name"]))
    training, initial_model, rewards = config["training"], folder / INITIAL_MODEL, _rewards(config)
    opened, closed = config["model"]["think_tags"]
    size = config["model"]["reasoning_vocab_size"]
    if (initial_model / LAYOUT_FILE).is_file():
        size = VocabLayout.load(initial_model).size
    batch = training["per_device_train_batch_size"]
    reads = [traits_by_name(each.name).declared_reading(each.params) for each in rewards.functions]
    return RunFacts(
        exp_name=config["exp_name"],
        model=config["model"]["name"],
        dataset=config["dataset"]["name"],
        reasoning_vocab_size=size if isinstance(size, int) else 0,
        think_tags=(opened, closed),
        rewards=tuple(
            RewardFact(name, each.weight, each.adaptive is not None, each.full_mark, declared)
            for name, each, declared in zip(logged_names(rewards.functions), rewards.functions, reads, strict=True)
        ),
        max_steps=training.get("max_steps"),
        completions_per_step=batch * training["gradient_accumulation_steps"] / training["num_iterations"],
        **{name: training[name] for name in ("num_generations", "max_completion_length", "learning_rate", "use_vllm")},
        tools=tools_of(config),
        trainer=Path(training.get("trainer") or "").name,
        stages=tuple(stages),
    )


def tools_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the tools and the environment of a resolved configuration, without their folders."""
    environment = (config.get("environment") or {}).get("name", "")
    return tuple(Path(name).name for name in [*(config.get("tools") or ()), environment] if name)


def _rewards(config: Mapping[str, Any]) -> RewardSettings:
    return read(RewardSettings, config.get("rewards") or {"functions": []}, "rewards")


@dataclass(frozen=True)
class RunOfCheckpoint:
    """The run that a checkpoint belongs to, and the sampling settings of its stage; without a run, the defaults."""

    folder: Path | None = None
    settings: RunSettings | None = None
    system_prompt: str | None = None
    max_new_tokens: int = 1024
    temperature: float = 1.0
    truncation: Mapping[str, Any] = field(default_factory=dict)
    max_tool_calling_iterations: int | None = None


def run_of_checkpoint(checkpoint: Path) -> RunOfCheckpoint:
    """Read `config.yaml` of the checkpoint's run; UserError if that is not the configuration of a run."""
    folder = run_folder_of(checkpoint)
    if folder is None:
        return RunOfCheckpoint()
    settings = read_settings("train", [f"config={folder}"])
    stage = stage_of(checkpoint, settings)
    generation = stage.model.generation_kwargs
    return RunOfCheckpoint(
        folder,
        settings,
        settings.dataset.system_prompt if system_prompt_used(folder) else None,
        generation["max_new_tokens"],
        generation["temperature"],
        truncation_of(stage.training.grpo),
        stage.training.grpo.get("max_tool_calling_iterations"),
    )


def stage_of(checkpoint: Path, settings: RunSettings) -> RunSettings:
    """The settings of the stage that a checkpoint belongs to; outside a stage folder, those of the last stage."""
    above = [folder for folder in map(Path.absolute, parents_of(checkpoint)) if folder.parent.name == "stages"]
    names, stages = {folder.name.partition("_")[2] for folder in above}, stages_of(settings)
    return next((stage.run for stage in stages if stage.name in names), stages[-1].run)


def system_prompt_used(folder: Path) -> bool:
    """Whether the prompts of a run used the system prompt of its configuration."""
    return bool((read_json_if_there(folder / PROBLEMS) or {}).get(SYSTEM_PROMPT_USED, True))


def configuration_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted key -> value, with the defaults of every reward filled in, however they were recorded."""
    sections = {key: value for key, value in config.items() if key != "environment"}
    keys = dict(leaves({**sections, "rewards": asdict(_rewards(config))}))
    return keys | {"environment": config.get("environment")}  # one key, whatever the parameters of the class
