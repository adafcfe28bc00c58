"""The folder of a run: whether a run may write there, begins anew, or goes on with what is there. Needs no torch."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

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
from rlvr_vocab.runs.environment import environment, names_on_hub
from rlvr_vocab.runs.lock import LOCK, check_not_running

logger = logging.getLogger(__name__)

_DIFFERENCES_SHOWN = 3
_CLEARED = ".cleared"
# A scheduler's log; what a start that was killed leaves, in an empty folder or in that of a run that it replaced.
_BEFORE_A_RUN = re.compile(r"slurm-.*\.log|\.config\.yaml\.partial|\.cleared")
RESUME_MODES = ("auto", "never")  # any other value of `resume` is a checkpoint
# What a run that is resumed may do otherwise than before: its model is made, and its problems are divided.
_CHANGEABLE = ("training", "rewards", "model.generation_kwargs", "model.model_kwargs")


def check_run_folder(settings: RunSettings) -> None:
    """Raises UserError where the folder holds anything but an earlier part of the same run, or is being written."""
    if not is_main_process():  # which may have begun to write by now
        return
    folder = settings.output_dir
    check_no_file_in_the_way(folder, "output_dir")
    check_not_running(folder)
    if not _holds_a_run(folder):
        if settings.resume not in RESUME_MODES:
            raise UserError(f"resume={settings.resume}: {folder} holds no run that could go on")
        return
    if settings.overwrite:
        if settings.resume not in RESUME_MODES:
            raise UserError(
                f"resume={settings.resume} goes on with a run that overwrite=true deletes: give one of them"
            )
        if _holds_more_than_a_run(folder):
            raise UserError(f"output_dir={folder}: overwrite=true would delete more than a run; choose another folder")
        return
    _check_resume(settings)
    _check_same_run(settings)
    _check_something_to_train(settings)


def _holds_a_run(folder: Path) -> bool:
    """Whether there is a run in the folder; nothing, or its lock and a scheduler's log alone, is none.

    Raises:
        UserError: there is something else.
    """
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
    """Whether a file is no part of a run: it may be there before the run, and stays when the run is replaced."""
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


def _check_same_run(settings: RunSettings) -> None:
    """Refuse to go on with another configuration, but for the keys that may change and were named."""
    changes = changes_of(settings)
    folder = settings.output_dir
    for key in settings.allow_changes:
        if any(_covers(key, changed) for changed, _, _ in changes) and not key.startswith(_CHANGEABLE):
            raise UserError(f"allow_changes: {key} decides what the run is, not how it goes on; begin a new one")
    different = [change for change in changes if not any(_covers(key, change[0]) for key in settings.allow_changes)]
    if any(key == "training.optim" for key, _, _ in changes):
        raise UserError("training.optim: an optimizer cannot go on from the state of another; begin a new run")
    if different:
        shown = "; ".join(
            f"{key}: {as_typed(there)} there, {as_typed(here)} here"
            for key, there, here in different[:_DIFFERENCES_SHOWN]
        )
        more = f"; {len(different) - _DIFFERENCES_SHOWN} more" if len(different) > _DIFFERENCES_SHOWN else ""
        allowed = [key for key, _, _ in different if key.startswith(_CHANGEABLE)]
        by_name = f", or go on with the change by allow_changes=[{','.join(allowed)}]"
        go_on = by_name if len(allowed) == len(different) else ""
        raise UserError(
            f"output_dir={folder}: holds a run with another configuration ({shown}{more}); "
            f"choose another exp_name or output_dir, or add overwrite=true{go_on}"
        )


def _check_something_to_train(settings: RunSettings) -> None:
    """Refuse to change a finished run in a way that trains nothing more, or from nothing."""
    folder, changed = settings.output_dir, [key for key, _, _ in changes_of(settings)]
    if not changed or not (folder / SUMMARY).is_file():
        return
    finished = f"output_dir={folder}: this run is finished, and"
    if settings.stages:
        raise UserError(f"{finished} its stages have ended: {_train_elsewhere(settings)}")
    if not any(folder.glob("checkpoint-*")):
        raise UserError(f"{finished} holds no checkpoint to go on from: {_train_elsewhere(settings)}")
    summary, limit = read_record(folder, SUMMARY) or {}, settings.training.grpo
    if "steps" not in summary:
        raise UserError(f"{folder / SUMMARY} is damaged: the same command without changes makes it anew")
    done = summary["steps"]
    longer = limit["max_steps"] > done if limit["max_steps"] is not None else "training.num_train_epochs" in changed
    if not longer:
        raise UserError(f"{finished} with these changes nothing more is trained: raise training.max_steps above {done}")


def _train_elsewhere(settings: RunSettings) -> str:
    if settings.model.reasoning_vocab_size == 0:
        return "train further from its final_model with model.name"
    return "choose another exp_name or output_dir to train anew"


def changes_of(settings: RunSettings) -> list[tuple[str, Any, Any]]:
    """(key, recorded value, new value) of each key in which the configuration differs from the recorded one."""
    return list(differences(read_recorded(settings.output_dir, resolve=True), settings.resolved))


def _covers(allowed: str, key: str) -> bool:
    """Whether `allowed` is the key or a section that it lies in."""
    return key == allowed or key.startswith(f"{allowed}.")


def _holds_more_than_a_run(folder: Path) -> bool:
    """A config.yaml copied into a working folder or a repository does not make it a run's folder."""
    return (folder / ".git").exists() or Path.cwd().is_relative_to(folder.resolve())


def check_new_folder(folder: Path, key: str) -> None:
    """Raises UserError where the folder exists and is not empty."""
    check_no_file_in_the_way(folder, key)
    if folder.is_dir() and any(folder.iterdir()):
        raise UserError(f"{key}={folder}: not empty; choose another folder")


def check_new_file(file: Path, key: str, read: Iterable[str]) -> None:
    """Raises UserError where a folder is in the way, or the file is one of those that are read."""
    if file.is_dir():
        raise UserError(f"{key}={file}: a folder; give a file")
    if any(Path(name).expanduser().resolve() == file.resolve() for name in read):
        raise UserError(f"{key}={file}: is a problem set of this command; give another file")
    check_no_file_in_the_way(file.parent, key)


def check_no_file_in_the_way(folder: Path, key: str) -> None:
    for path in (folder, *folder.parents):
        if path.exists() and not path.is_dir():
            raise UserError(f"{key}={folder}: {path} is a file; give a folder")


def start_run_folder(settings: RunSettings) -> None:
    """Make the folder and write down configuration and environment; `overwrite` clears an earlier run first."""
    folder = settings.output_dir
    if (folder / _CLEARED).exists():  # by a start that was killed
        shutil.rmtree(folder / _CLEARED)
    here = environment()
    if (folder / CONFIG).is_file():
        if settings.overwrite:
            _clear(folder)
        else:
            _remove_partial_folders(folder)
            _compare_threads(folder, here)
            _write_down_changes(settings)
            (folder / MANIFEST).unlink(missing_ok=True)  # of a finished run: from here on this is none
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / CONFIG, config_yaml(settings.resolved))  # marks the folder as a run
    atomic_write(folder / ENVIRONMENT, json_text({**here, "names_on_hub": names_on_hub(settings.resolved)}))


def results_file(folder: Path, when: str) -> Path:
    """Where a run keeps what it measured on its held-out problems."""
    return folder / "evaluation" / f"{when}.jsonl"


def _reopen(folder: Path) -> None:
    """Rename the summary and the last results of a finished run, which is to be trained further."""
    summary = read_record(folder, SUMMARY)
    if summary is None:
        return
    for path in (results_file(folder, "after"), folder / SUMMARY):
        if path.exists():
            path.rename(path.with_stem(f"{path.stem}_{summary['steps']}_steps"))


def _clear(folder: Path) -> None:
    """Remove an earlier run. Killed in the middle, it is a run that is not finished, and then one without a checkpoint.

    Its mark goes last, so that what is left is still known as a run's.
    """
    cleared = folder / _CLEARED
    cleared.mkdir()
    of_the_run = [path for path in folder.iterdir() if not _belongs_to_no_run(path)]
    for path in sorted(of_the_run, key=_removal_order):
        path.rename(cleared / path.name)
    shutil.rmtree(cleared)


def _removal_order(path: Path) -> tuple[bool, bool, bool, str]:
    """A key for sorting: the outcome first, then checkpoints, the configuration last."""
    is_checkpoint = path.name == "stages" or path.name.startswith("checkpoint-")
    return path.name == CONFIG, path.name not in (MANIFEST, SUMMARY), not is_checkpoint, path.name


def _remove_partial_folders(folder: Path) -> None:
    """Remove what a killed process has left of the folders that it was writing."""
    for name in (INITIAL_MODEL, FINAL_ADAPTER, FINAL_MODEL):
        for path in folder.glob(f".*{name}.*"):
            shutil.rmtree(path)


def _compare_threads(folder: Path, here: dict[str, Any]) -> None:
    """Warn where a run goes on with another number of threads: on a CPU they add up in another order."""
    try:
        before = (read_record(folder, ENVIRONMENT) or {}).get("threads")
    except UserError as error:
        logger.warning("%s: it is written anew, what the run began with is not known", error)
        return
    if before not in (None, here["threads"]) and not here["gpus"]:
        logger.warning(
            "the run began with %s threads and goes on with %s: its last digits will be others; OMP_NUM_THREADS=%s "
            "keeps them",
            *(before, here["threads"], before),
        )


def _write_down_changes(settings: RunSettings) -> None:
    """Append the changed keys to `changes.jsonl`; a finished run is reopened by them."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    changes = [{"at": now, "key": key, "from": there, "to": here} for key, there, here in changes_of(settings)]
    if changes or settings.resume not in RESUME_MODES:
        _reopen(settings.output_dir)
    if not changes:
        return
    with (settings.output_dir / CHANGES).open("a", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(change, default=str)}\n" for change in changes)
