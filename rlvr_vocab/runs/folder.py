"""The folder of a run: what a start of it may find there, and the records that it begins with. Needs no torch."""

from __future__ import annotations

import json
import logging
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from rlvr_vocab.config.recorded import config_yaml, differences, read_recorded
from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.config.values import as_typed
from rlvr_vocab.errors import UserError, is_main_process
from rlvr_vocab.files import atomic_write, json_text
from rlvr_vocab.record.files import (
    CHANGES,
    CONFIG,
    ENVIRONMENT,
    FINAL_ADAPTER,
    FINAL_MODEL,
    INITIAL_MODEL,
    SUMMARY,
    read_record,
)
from rlvr_vocab.record.manifest import MANIFEST
from rlvr_vocab.runs.lock import LOCK, check_not_running
from rlvr_vocab.secrets import without_secrets

if TYPE_CHECKING:
    from rich.console import Console

    from rlvr_vocab.vocab.layout import VocabLayout

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """A run whose folder and initial model are there; made once, and handed to all that works on it."""

    settings: RunSettings
    layout: VocabLayout
    console: Console

    @property
    def folder(self) -> Path:
        return self.settings.output_dir

    @property
    def initial_model(self) -> Path:
        return self.folder / INITIAL_MODEL


_DIFFERENCES_SHOWN = 3
_CLEARED = ".cleared"
# A scheduler's log; what a start that was killed leaves, in an empty folder or in that of a run that it replaced.
_BEFORE_A_RUN = re.compile(r"slurm-.*\.log|\.config\.yaml\.partial|\.cleared")
RESUME_MODES = ("auto", "never")  # any other value of `resume` is a checkpoint
# Keys that `allow_changes` may name: the model is made, and the problems are divided.
_CHANGEABLE = ("training", "rewards", "model.generation_kwargs", "model.model_kwargs")


def check_run_folder(settings: RunSettings) -> None:
    """Raises UserError where the folder holds anything but an earlier part of the same run, or is being written."""
    if not is_main_process():  # which may have begun to write by now
        return
    folder, named = settings.output_dir, settings.resume not in RESUME_MODES
    check_not_running(folder)
    if not _holds_a_run(folder):
        if named:
            raise UserError(f"resume={settings.resume}: {folder} holds no run that could go on")
        return
    if settings.overwrite:
        if named:
            raise UserError(
                f"resume={settings.resume} goes on with a run that overwrite=true deletes: give one of them"
            )
        # A config.yaml copied into a working folder or a repository does not make it a run's folder.
        if (folder / ".git").exists() or Path.cwd().is_relative_to(folder.resolve()):
            raise UserError(f"output_dir={folder}: overwrite=true would delete more than a run; choose another folder")
        return
    _check_resume(settings)
    changes = changes_of(settings)
    _check_same_run(settings, changes)
    if changes and (folder / SUMMARY).is_file():
        _check_trains_further(settings, [key for key, _, _ in changes])


def _holds_a_run(folder: Path) -> bool:
    """Whether there is a run in the folder; raises UserError where there is something else."""
    if not folder.is_dir() or all(map(_belongs_to_no_run, folder.iterdir())):
        return False
    if not (folder / CONFIG).is_file():
        raise UserError(f"output_dir={folder}: not empty, and not a run of ours (no config.yaml); choose another one")
    try:
        read_recorded(folder, resolve=True)
    except UserError as error:
        raise UserError(f"output_dir={folder}: not empty, and not a run of ours ({error})") from error
    return True


def _belongs_to_no_run(path: Path) -> bool:
    """Whether a file may be there before the run, and stays when the run is replaced."""
    return path.name == LOCK or _BEFORE_A_RUN.fullmatch(path.name) is not None


def _check_resume(settings: RunSettings) -> None:
    checkpoints = [*settings.output_dir.glob("checkpoint-*"), *settings.output_dir.glob("stages/*/checkpoint-*")]
    if settings.resume == "never" and checkpoints:
        raise UserError(
            f"resume=never: {settings.output_dir} holds checkpoints of this run; leave it out to go on, or choose "
            "another output_dir, or add overwrite=true"
        )
    if settings.resume in RESUME_MODES:
        return
    if Path(settings.resume).expanduser().resolve() not in map(Path.resolve, checkpoints):
        listed = ", ".join(sorted(path.name for path in checkpoints)) or "none"
        raise UserError(f"resume={settings.resume}: no checkpoint of {settings.output_dir}; there are {listed}")


def _check_same_run(settings: RunSettings, changes: list[Change]) -> None:
    """Refuse another configuration, but for the keys that may change and were named."""
    for key in settings.allow_changes:
        if any(_covers(key, changed) for changed, _, _ in changes) and not key.startswith(_CHANGEABLE):
            raise UserError(f"allow_changes: {key} cannot change on resume; start a new run")
    if any(key == "training.optim" for key, _, _ in changes):
        raise UserError("training.optim: an optimizer cannot go on from the state of another; start a new run")
    refused = [change for change in changes if not any(_covers(key, change[0]) for key in settings.allow_changes)]
    if not refused:
        return
    shown = [f"{key}: {as_typed(there)} there, {as_typed(here)} here" for key, there, here in refused]
    if len(shown) > _DIFFERENCES_SHOWN:
        shown[_DIFFERENCES_SHOWN:] = [f"{len(shown) - _DIFFERENCES_SHOWN} more"]
    keys = [key for key, _, _ in refused]
    may_change = all(key.startswith(_CHANGEABLE) for key in keys)
    go_on = f", or go on with the change by allow_changes=[{','.join(keys)}]" if may_change else ""
    raise UserError(
        f"output_dir={settings.output_dir}: holds a run with another configuration ({'; '.join(shown)}); "
        f"choose another exp_name or output_dir, or add overwrite=true{go_on}"
    )


def _check_trains_further(settings: RunSettings, changed: list[str]) -> None:
    """Refuse to change a finished run in a way that trains nothing more, or from nothing."""
    folder, max_steps = settings.output_dir, settings.training.grpo["max_steps"]
    finished = f"output_dir={folder}: this run is finished, and"
    if settings.stages or not any(folder.glob("checkpoint-*")):
        why = "its stages have ended" if settings.stages else "holds no checkpoint to go on from"
        raise UserError(f"{finished} {why}: choose another exp_name or output_dir to train anew")
    done = (read_record(folder, SUMMARY) or {}).get("steps", 0)
    longer = max_steps > done if max_steps is not None else "training.num_train_epochs" in changed
    if not longer:
        raise UserError(f"{finished} with these changes nothing more is trained: raise training.max_steps above {done}")


Change = tuple[str, Any, Any]


def changes_of(settings: RunSettings) -> list[Change]:
    """(key, recorded value, new value) of each key in which the configuration differs from the recorded one."""
    return list(differences(read_recorded(settings.output_dir, resolve=True), settings.resolved))


def _covers(allowed: str, key: str) -> bool:
    """Whether `allowed` is the key or a section that it lies in."""
    return key == allowed or key.startswith(f"{allowed}.")


def results_file(folder: Path, when: str) -> Path:
    """The held-out answers of a run, as it measured them."""
    return folder / "evaluation" / f"{when}.jsonl"


def start_run_folder(settings: RunSettings) -> None:
    """Make the folder and write configuration and environment; `overwrite` clears an earlier run first."""
    folder = settings.output_dir
    if (folder / _CLEARED).exists():  # by a start that was killed
        shutil.rmtree(folder / _CLEARED)
    here = environment()
    if (folder / CONFIG).is_file():
        if settings.overwrite:
            _clear(folder)
        else:
            for name in (INITIAL_MODEL, FINAL_ADAPTER, FINAL_MODEL):  # partly written by a killed process
                for path in folder.glob(f".*{name}.*"):
                    shutil.rmtree(path)
            _warn_of_other_threads(folder, here)
            _record_changes(settings)
            (folder / MANIFEST).unlink(missing_ok=True)  # of a finished run: from here on this is none
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / CONFIG, config_yaml(settings.resolved))  # marks the folder as a run
    atomic_write(folder / ENVIRONMENT, json_text({**here, "names_on_hub": names_on_hub(settings.resolved)}))


def _clear(folder: Path) -> None:
    """Remove an earlier run; killed in the middle, it is a run that is not finished, then one without a checkpoint."""
    cleared = folder / _CLEARED
    cleared.mkdir()
    for path in sorted(filter(lambda path: not _belongs_to_no_run(path), folder.iterdir()), key=_removal_order):
        path.rename(cleared / path.name)
    shutil.rmtree(cleared)


def _removal_order(path: Path) -> tuple[bool, bool, bool, str]:
    """A key for sorting: the outcome first, then checkpoints, the configuration last, as it marks a run."""
    is_checkpoint = path.name == "stages" or path.name.startswith("checkpoint-")
    return path.name == CONFIG, path.name not in (MANIFEST, SUMMARY), not is_checkpoint, path.name


def _warn_of_other_threads(folder: Path, here: dict[str, Any]) -> None:
    """On a CPU another number of threads adds up in another order."""
    before = (read_record(folder, ENVIRONMENT) or {}).get("threads")
    if before not in (None, here["threads"]) and not here["gpus"]:
        logger.warning(
            "the run began with %s threads and goes on with %s: its last digits will be others; OMP_NUM_THREADS=%s "
            "keeps them",
            *(before, here["threads"], before),
        )


def _record_changes(settings: RunSettings) -> None:
    """Append the changed keys to `changes.jsonl`; a finished run is reopened: its summary and last results renamed."""
    folder, changes = settings.output_dir, changes_of(settings)
    summary = read_record(folder, SUMMARY) if changes or settings.resume not in RESUME_MODES else None
    if summary is not None:
        for path in (results_file(folder, "after"), folder / SUMMARY):
            if path.exists():
                path.rename(path.with_stem(f"{path.stem}_{summary['steps']}_steps"))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    if changes:
        with (folder / CHANGES).open("a", encoding="utf-8") as file:
            for key, there, here in changes:
                file.write(json.dumps({"at": now, "key": key, "from": there, "to": here}, default=str) + "\n")


_PACKAGES = (
    *("rlvr-vocab", "torch", "transformers", "trl", "accelerate", "peft", "datasets", "mpmath", "sympy"),
    *("latex2sympy2-extended", "bitsandbytes", "vllm"),
)


def environment() -> dict[str, Any]:
    """Versions, commit, hardware and command line."""
    import torch  # the checks of a command line, which come by here, must answer without it

    root = Path(__file__).parents[2]
    commit = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": [without_secrets(word) for word in sys.argv],
        "commit": commit.stdout.strip() or None,  # None outside a git checkout
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor_cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        "versions": {package: found for package in _PACKAGES if (found := _version(package)) is not None},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")
_FILES = (".csv", ".tsv", ".json", ".jsonl", ".parquet")


def names_on_hub(config: Mapping[str, Any]) -> list[str]:
    """The names of model and problem sets that are on the hub, seen from the working folder.

    `customers/tickets` may also be a folder: the start of a run decides, and a model card shows no path.
    """
    stages = [stage.get("dataset", {}) for stage in config.get("stages") or []]
    names = [config["model"]["name"], config["dataset"]["name"], *(each["name"] for each in stages if "name" in each)]
    return sorted(
        {
            name
            for name in names
            if _HUB_NAME.fullmatch(name) and PurePath(name).suffix.lower() not in _FILES and not Path(name).exists()
        }
    )
