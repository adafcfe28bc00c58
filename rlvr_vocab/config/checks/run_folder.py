"""What a run may find in its folder: nothing, or an earlier part of the same run. Needs no torch."""

from __future__ import annotations

from pathlib import Path

from rlvr_vocab.config.recorded import read_recorded
from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.config.values import as_typed
from rlvr_vocab.errors import UserError, is_main_process
from rlvr_vocab.record.files import SUMMARY, read_record
from rlvr_vocab.runs.folder import NOT_OF_A_RUN, changes_of, check_not_running

_DIFFERENCES_SHOWN = 3
# Keys that `allow_changes` may name: the model is made, and the problems are divided.
_CHANGEABLE = ("training", "rewards", "model.generation_kwargs", "model.model_kwargs")


def check_run_folder(settings: RunSettings) -> None:
    """Raises UserError where the folder holds anything but an earlier part of the same run, or is being written."""
    if not is_main_process():  # which may have begun to write by now
        return
    folder, named = settings.output_dir, settings.resume != "auto"
    check_not_running(folder)
    if not _holds_a_run(folder):
        if named:
            raise UserError(f"resume={settings.resume}: {folder} holds no run that could go on")
        return
    if named and settings.overwrite:
        raise UserError(f"resume={settings.resume} goes on with a run that overwrite=true deletes: give one of them")
    checkpoints = [*folder.glob("checkpoint-*"), *folder.glob("stages/*/checkpoint-*")]
    if named and Path(settings.resume).expanduser().resolve() not in map(Path.resolve, checkpoints):
        listed = ", ".join(sorted(path.name for path in checkpoints)) or "none"
        raise UserError(f"resume={settings.resume}: no checkpoint of {folder}; there are {listed}")
    if not settings.overwrite:
        _check_changes(settings)
    # A config.yaml copied into a working folder or a repository does not make it a run's folder.
    elif (folder / ".git").exists() or Path.cwd().is_relative_to(folder.resolve()):
        raise UserError(f"output_dir={folder}: overwrite=true would delete more than a run; choose another folder")


def _holds_a_run(folder: Path) -> bool:
    """Whether there is a run in the folder; raises UserError where there is something else."""
    if not folder.is_dir() or all(NOT_OF_A_RUN.fullmatch(path.name) for path in folder.iterdir()):
        return False
    try:
        read_recorded(folder, resolve=True)
    except UserError as error:
        raise UserError(f"output_dir={folder}: not empty, and not a run of ours ({error})") from error
    return True


def _check_changes(settings: RunSettings) -> None:
    """Refuse another configuration, but for keys that may change and were named, and changes that train nothing."""
    folder, changes = settings.output_dir, changes_of(settings)
    keys = [key for key, _, _ in changes]
    for key in keys:
        allowed = any(key == each or key.startswith(f"{each}.") for each in settings.allow_changes)
        if allowed and (key == "training.optim" or not key.startswith(_CHANGEABLE)):
            raise UserError(f"allow_changes: {key} cannot change on resume; start a new run")
    refused = [
        (key, f"{key}: {as_typed(there)} there, {as_typed(here)} here")
        for key, there, here in changes
        if not any(key == each or key.startswith(f"{each}.") for each in settings.allow_changes)
    ]
    if refused:
        shown = [line for _, line in refused[:_DIFFERENCES_SHOWN]]
        shown += [f"{len(refused) - _DIFFERENCES_SHOWN} more"] * (len(refused) > _DIFFERENCES_SHOWN)
        may_change = all(key.startswith(_CHANGEABLE) for key, _ in refused)
        allow = f"allow_changes=[{','.join(key for key, _ in refused)}]"
        raise UserError(
            f"output_dir={folder}: holds a run with another configuration ({'; '.join(shown)}); choose another "
            f"exp_name or output_dir, or add overwrite=true{f', or go on with the change by {allow}' * may_change}"
        )
    if changes and (folder / SUMMARY).is_file():
        finished = f"output_dir={folder}: this run is finished, and"
        if settings.stages or not any(folder.glob("checkpoint-*")):
            why = "its stages have ended" if settings.stages else "holds no checkpoint to go on from"
            raise UserError(f"{finished} {why}: choose another exp_name or output_dir to train anew")
        done, max_steps = (read_record(folder, SUMMARY) or {}).get("steps", 0), settings.training.grpo["max_steps"]
        if not (max_steps > done if max_steps is not None else "training.num_train_epochs" in keys):
            raise UserError(f"{finished} these changes train nothing more: raise training.max_steps above {done}")
