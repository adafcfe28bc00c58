"""The checkpoints of a training: found, checked, and written so that every folder `checkpoint-<step>` is whole.

A checkpoint is written in `.saving/`, synced, given its manifest, synced again, and then renamed. An old one is renamed
before it is deleted. A manifest lists the files with sizes and hashes; a folder without a valid one does not count.
"""

from __future__ import annotations

import errno
import logging
import os
import pickle
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from safetensors import SafetensorError
from transformers import TrainerState
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_pt_utils import safe_globals

from rlvr_vocab.errors import OutOfRoom, UserError
from rlvr_vocab.record.manifest import MANIFEST, problem_with, set_aside, write_manifest
from rlvr_vocab.vocab.weights import weights_fingerprint

logger = logging.getLogger(__name__)

_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
# Errors of reading a file as plain tensors.
_NOT_PLAIN = (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, TypeError, LookupError, AttributeError)


def problem_of_checkpoint(folder: Path, *, hashed: bool = True) -> str | None:
    """The fault of a checkpoint, with the file; None where it is valid. Not `hashed`: by sizes alone."""
    if problem := problem_with(folder, hashed=hashed):
        return problem
    try:
        weights_fingerprint(folder)
        path = folder / TRAINER_STATE_NAME
        if path.is_file():
            TrainerState.load_from_json(str(path))
        for path in sorted((*folder.glob("*.pt"), *folder.glob("*.pth"))):
            with safe_globals():
                torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except UserError as error:
        return str(error)
    except _NOT_PLAIN as error:
        return f"{path.name} cannot be read as plain data ({type(error).__name__})"
    return None


def newest_checkpoint(output_dir: Path, *, hashed: bool = True) -> Path | None:
    """The valid checkpoint of the highest step; None where there is none."""
    newest_first = (folder for _, folder in sorted(steps_in(output_dir).items(), reverse=True))
    return next((folder for folder in newest_first if problem_of_checkpoint(folder, hashed=hashed) is None), None)


def checkpoint_for_all(output_dir: Path, resume: str | Path | bool | None) -> Path | None:
    """The checkpoint that a trainer resumes: the named one, checked by sizes, or, for True, the newest valid one."""
    if resume is True:
        newest = newest_for_all(output_dir)
        if newest is None:
            raise UserError(f"resume_from_checkpoint=True: {output_dir} has no valid checkpoint")
        return newest
    if not resume:
        return None
    folder = Path(resume)
    if not folder.is_dir():
        newest = newest_checkpoint(folder.parent, hashed=False)
        raise UserError(f"{resume}: no such folder" + (f"; the newest is {newest.name}" if newest else ""))
    if problem := problem_of_checkpoint(folder, hashed=False):
        raise UserError(f"{resume}: cannot resume from it: {problem}")
    return folder


def newest_for_all(output_dir: Path) -> Path | None:
    """The newest valid checkpoint, in every process; newer folders are set aside."""
    [newest] = broadcast_object_list([_set_invalid_aside(output_dir) if PartialState().is_main_process else None])
    return newest


def _set_invalid_aside(output_dir: Path) -> Path | None:
    """The newest valid checkpoint; newer folders are renamed, with a warning."""
    for _, folder in sorted(steps_in(output_dir).items(), reverse=True):
        problem = problem_of_checkpoint(folder)
        if problem is None:
            return folder
        logger.warning("%s is not valid: %s; it is set aside as %s", folder, problem, set_aside(folder, "broken").name)
    return None


def steps_in(output_dir: Path) -> dict[int, Path]:
    """The folders with the names of checkpoints, by their step."""
    return {
        int(match[1]): path for path in output_dir.glob("checkpoint-*") if (match := _CHECKPOINT.fullmatch(path.name))
    }


_SAVING, _DELETING = ".saving", ".deleting"
# Errors of a full disk or quota, of the system and of safetensors; torch names its file and no reason.
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_IN_WORDS = ("No space left on device", "Disk quota exceeded", "inline_container.cc")


def save_whole(
    output_dir: Path,
    step: int,
    write: Callable[[Path], None],
    *,
    publishes: bool,
    keep: int | None = None,
    best: int | None = None,
) -> str | None:
    """Write a checkpoint, each process its part by `write`; return a message where the disk is full, and leave nothing.

    Args:
        publishes: whether this process renames it once all have written.
        keep: the number of checkpoints that stay, this one included; None: all. The one of step `best` stays too.
    """
    staged = output_dir / _SAVING / f"checkpoint-{step}"
    full = any(gather_object([publishes and _less_is_free_than_the_newest_takes(output_dir)]))
    full = full or any(gather_object([_fills_the_disk(lambda: write(staged))]))
    full = full or any(gather_object([publishes and _fills_the_disk(lambda: _publish(staged, output_dir))]))
    if publishes:
        clear_leftovers(output_dir)
    if full:
        whole = newest_checkpoint(output_dir, hashed=False)
        rest = "there is no earlier one" if whole is None else f"{whole.name} is intact"
        return f"the disk of {output_dir} has no room for checkpoint-{step}; {rest}"
    if publishes and keep is not None:
        for number, folder in sorted(steps_in(output_dir).items(), reverse=True)[keep:]:
            if number != best:
                _remove(folder)
    return None


def clear_leftovers(output_dir: Path) -> None:
    """Remove the leftovers of a save or a deletion that was killed."""
    for folder in (output_dir / _SAVING, output_dir / _DELETING):
        shutil.rmtree(folder, ignore_errors=True)  # a network file system keeps deleted files that are open


def is_full(error: BaseException) -> bool:
    """Whether an error is that of a full disk."""
    if isinstance(error, OSError):
        return error.errno in _FULL
    return any(words in str(error) for words in _FULL_IN_WORDS)


@contextmanager
def full_disk_as_out_of_room(folder: Path) -> Iterator[None]:
    """Inside the block the error of a full disk becomes OutOfRoom, one line."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        if not is_full(error):
            raise
        what = f" ({error.filename})" if isinstance(error, OSError) and error.filename else ""
        raise OutOfRoom(f"the disk of {folder} is full{what}. Make room and give the same command again") from error


def _publish(staged: Path, output_dir: Path) -> None:
    for path in [*staged.rglob("*"), staged]:
        _sync(path)
    write_manifest(staged)
    _sync(staged / MANIFEST)
    _sync(staged)
    final = output_dir / staged.name
    if final.exists():  # of a run that was resumed before this step
        _remove(final)
    staged.rename(final)
    _sync(output_dir)


def _less_is_free_than_the_newest_takes(output_dir: Path) -> bool:
    output_dir.mkdir(parents=True, exist_ok=True)
    earlier = steps_in(output_dir)
    files = earlier[max(earlier)].rglob("*") if earlier else ()
    return shutil.disk_usage(output_dir).free < sum(path.stat().st_size for path in files if path.is_file())


def _fills_the_disk(work: Callable[[], None]) -> bool:
    try:
        with full_disk_as_out_of_room(Path()):
            work()
    except OutOfRoom:
        return True
    return False


def _remove(folder: Path) -> None:
    doomed = folder.parent / _DELETING
    try:
        doomed.mkdir(exist_ok=True)
        folder.rename(doomed / folder.name)
        _sync(folder.parent)
        shutil.rmtree(doomed)
    except OSError as error:
        logger.warning("%s could not be deleted: %s", folder, error.strerror or error)


def _sync(path: Path) -> None:
    """Sync a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
