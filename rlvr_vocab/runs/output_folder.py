"""Whether a run may write where it is told to: not over another configuration's run or foreign files."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rlvr_vocab.config.recorded import differences, read_recorded
from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.config.values import as_typed
from rlvr_vocab.errors import UserError
from rlvr_vocab.exit_codes import is_main_process
from rlvr_vocab.record.files import SUMMARY
from rlvr_vocab.record.json_files import read_record
from rlvr_vocab.runs.lock import LOCK, check_not_running

DIFFERENCES_SHOWN = 3
CLEARED = ".cleared"
# A scheduler's log; what a start that was killed leaves, in an empty folder or in that of a run that it replaced.
BEFORE_A_RUN = re.compile(r"slurm-.*\.log|\.config\.yaml\.partial|\.cleared")
WITHOUT_A_NAME = ("auto", "never")
# What a run that is resumed may do otherwise than before: its model is made, and its problems are divided.
CHANGEABLE = ("training", "rewards", "model.generation_kwargs", "model.model_kwargs")


def check_run_folder(settings: RunSettings) -> None:
    """Raises UserError where the folder holds anything but an earlier part of the same run, or is being written."""
    if not is_main_process():  # which may have begun to write by now
        return
    folder = settings.output_dir
    check_no_file_in_the_way(folder, "output_dir")
    check_not_running(folder)
    if not holds_a_run(folder):
        if settings.resume not in WITHOUT_A_NAME:
            raise UserError(f"resume={settings.resume}: {folder} holds no run that could go on")
        return
    if settings.overwrite:
        if settings.resume not in WITHOUT_A_NAME:
            raise UserError(
                f"resume={settings.resume} goes on with a run that overwrite=true deletes: give one of them"
            )
        if holds_more_than_a_run(folder):
            raise UserError(f"output_dir={folder}: overwrite=true would delete more than a run; choose another folder")
        return
    check_resume(settings)
    check_same_run(settings)
    check_something_to_train(settings)


def holds_a_run(folder: Path) -> bool:
    """Whether there is a run in the folder; nothing, or its lock and a scheduler's log alone, is none.

    Raises:
        UserError: there is something else.
    """
    if not folder.is_dir() or all(map(belongs_to_no_run, folder.iterdir())):
        return False
    if not (folder / "config.yaml").is_file():
        raise UserError(f"output_dir={folder}: not empty, and not a run of ours (no config.yaml); choose another one")
    try:
        read_recorded(folder, resolve=True)
    except UserError as error:
        raise UserError(f"output_dir={folder}: not empty, and not a run of ours ({error})") from error
    return True


def belongs_to_no_run(path: Path) -> bool:
    """What lies in a run's folder and is no part of the run: it may be there before, and stays when it is replaced."""
    return path.name == LOCK or BEFORE_A_RUN.fullmatch(path.name) is not None


def check_resume(settings: RunSettings) -> None:
    checkpoints = [*settings.output_dir.glob("checkpoint-*"), *settings.output_dir.glob("stages/*/checkpoint-*")]
    if settings.resume == "never" and checkpoints:
        raise UserError(
            f"resume=never: {settings.output_dir} holds checkpoints of this run; leave it out to go on, or choose "
            "another output_dir, or add overwrite=true"
        )
    if settings.resume in WITHOUT_A_NAME:
        return
    if Path(settings.resume).expanduser().resolve() not in map(Path.resolve, checkpoints):
        listed = ", ".join(sorted(path.name for path in checkpoints)) or "none"
        raise UserError(f"resume={settings.resume}: no checkpoint of {settings.output_dir}; there are {listed}")


def check_same_run(settings: RunSettings) -> None:
    """Refuse to go on with another configuration, but for the keys that may change and were named."""
    changes = changes_of(settings)
    folder = settings.output_dir
    for key in settings.allow_changes:
        if not any(names(key, changed) for changed, _, _ in changes):
            continue
        if not key.startswith(CHANGEABLE):
            raise UserError(f"allow_changes: {key} decides what the run is, not how it goes on; begin a new one")
    different = [change for change in changes if not any(names(key, change[0]) for key in settings.allow_changes)]
    if any(key == "training.optim" for key, _, _ in changes):
        raise UserError("training.optim: an optimizer cannot go on from the state of another; begin a new run")
    if different:
        shown = "; ".join(
            f"{key}: {as_typed(there)} there, {as_typed(here)} here"
            for key, there, here in different[:DIFFERENCES_SHOWN]
        )
        more = f"; {len(different) - DIFFERENCES_SHOWN} more" if len(different) > DIFFERENCES_SHOWN else ""
        allowed = [key for key, _, _ in different if key.startswith(CHANGEABLE)]
        by_name = f", or go on with the change by allow_changes=[{','.join(allowed)}]"
        go_on = by_name if len(allowed) == len(different) else ""
        raise UserError(
            f"output_dir={folder}: holds a run with another configuration ({shown}{more}); "
            f"choose another exp_name or output_dir, or add overwrite=true{go_on}"
        )


def check_something_to_train(settings: RunSettings) -> None:
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
    longer = limit["max_steps"] > done if limit.get("max_steps", -1) > 0 else "training.num_train_epochs" in changed
    if not longer:
        raise UserError(f"{finished} with these changes nothing more is trained: raise training.max_steps above {done}")


def _train_elsewhere(settings: RunSettings) -> str:
    if settings.model.reasoning_vocab_size == 0:
        return "train further from its final_model with model.name"
    return "choose another exp_name or output_dir to train anew"


def changes_of(settings: RunSettings) -> list[tuple[str, Any, Any]]:
    """(key, value there, value here) in which a run is to go on otherwise than it was begun."""
    return list(differences(read_recorded(settings.output_dir, resolve=True), settings.resolved))


def names(allowed: str, key: str) -> bool:
    """Whether a key, or a section that it lies in, is allowed to change."""
    return key == allowed or key.startswith(f"{allowed}.")


def holds_more_than_a_run(folder: Path) -> bool:
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
