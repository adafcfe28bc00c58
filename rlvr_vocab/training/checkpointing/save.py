"""Writes a checkpoint so that it is there whole or not at all, and removes old ones without leaving halves.

A checkpoint is written in `.saving/`, synced, given its manifest, synced again, and only then takes its name. An old
one first loses its name and is deleted then. Whenever a process is killed, every folder called `checkpoint-<step>` is
a whole one, and what else lies there is rubbish that the next start clears away.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate.utils import gather_object
from peft import PeftModel
from safetensors import SafetensorError
from transformers import Trainer

from rlvr_vocab.errors import OutOfRoom
from rlvr_vocab.record.manifest import MANIFEST, write_manifest
from rlvr_vocab.training.checkpointing.checkpoints import newest_checkpoint, steps_in

logger = logging.getLogger(__name__)

_SAVING, _DELETING = ".saving", ".deleting"
# What a full disk, or a full quota, is called by the system and by safetensors. torch says in which of its lines it
# could not write on, and not why.
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_IN_WORDS = ("No space left on device", "Disk quota exceeded", "inline_container.cc")


@dataclass(frozen=True)
class Save:
    """One checkpoint to be written.

    Attributes:
        needed: bytes that it will take, about.
        keep: how many checkpoints stay, this one included; None: all.
        best: one that stays in any case.
        publishes: whether this process gives it its name once all have written their part.
    """

    output_dir: Path
    step: int
    needed: int
    keep: int | None
    best: int | None
    publishes: bool

    @property
    def staging(self) -> Path:
        """The folder in which it is written, under its own name."""
        return self.output_dir / _SAVING


def save_whole(save: Save, write: Callable[[Path], None]) -> str | None:
    """Have every process write its part, and give the checkpoint its name; every process calls it.

    Args:
        write: writes this process's part of the checkpoint's content into a folder.

    Returns:
        None if the checkpoint is valid, else a message that there is no room for it; then nothing of it is left.
    """
    staged = save.staging / f"checkpoint-{save.step}"
    full = _of_any_process(_too_small(save) if save.publishes else None)
    if full is None:
        full = _of_any_process(_unless_full(lambda: write(staged), save))
    if full is None:
        full = _of_any_process(_unless_full(lambda: _publish(staged, save), save) if save.publishes else None)
    if save.publishes:
        clear_leftovers(save.output_dir)
        if full is None and save.keep is not None:
            _remove_old(save.output_dir, save.keep, save.best)
    return full


def bytes_to_write(trainer: Trainer) -> int:
    """What a checkpoint will take: as much as the one before, else the tensors of model and optimizer."""
    earlier = steps_in(Path(trainer.args.output_dir))
    if earlier:
        newest = earlier[max(earlier)]
        return sum(path.stat().st_size for path in newest.rglob("*") if path.is_file())
    whole_model = not isinstance(trainer.model, PeftModel)
    parameters = [parameter for parameter in trainer.model.parameters() if whole_model or parameter.requires_grad]
    states = [] if trainer.args.save_only_model else trainer.optimizer.state.values()
    tensors = [*parameters, *(value for state in states for value in state.values() if torch.is_tensor(value))]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def clear_leftovers(output_dir: Path) -> None:
    """Remove what a killed process left of a save or of a deletion."""
    for folder in (output_dir / _SAVING, output_dir / _DELETING):
        if folder.exists():
            _delete(folder)


def is_full(error: BaseException) -> bool:
    """Whether an error says that there is no room on the disk."""
    if isinstance(error, OSError):
        return error.errno in _FULL
    return any(words in str(error) for words in _FULL_IN_WORDS)


@contextmanager
def full_disk_in_a_line(folder: Path) -> Iterator[None]:
    """Whatever a run is writing when the disk is full, it ends with a sentence on it.

    Raises:
        OutOfRoom: in place of the system's error.
    """
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        if not is_full(error):
            raise
        what = f" ({error.filename})" if isinstance(error, OSError) and error.filename else ""
        raise OutOfRoom(f"the disk of {folder} is full{what}. Make room and give the same command again") from error


def _publish(staged: Path, save: Save) -> None:
    _sync_all(staged)
    write_manifest(staged)
    _sync(staged / MANIFEST)
    _sync(staged)
    final = save.output_dir / staged.name
    if final.exists():  # of a run that was told to go back before this step
        _remove(final)
    staged.rename(final)
    _sync(save.output_dir)


def _too_small(save: Save) -> str | None:
    save.output_dir.mkdir(parents=True, exist_ok=True)
    return _words(save) if _free(save) < save.needed else None


def _unless_full(work: Callable[[], None], save: Save) -> str | None:
    """Do the work; where the disk turns out to be full, say so."""
    try:
        work()
    except (OSError, RuntimeError, SafetensorError) as error:
        if not is_full(error):
            raise
        return _words(save)
    return None


def _free(save: Save) -> int:
    return shutil.disk_usage(save.output_dir).free


def _words(save: Save) -> str:
    whole = newest_checkpoint(save.output_dir, hashed=False)
    stands = "there is no earlier one" if whole is None else f"{whole.name} is intact"
    wanted = f"checkpoint-{save.step} (about {_megabytes(save.needed)}, {_megabytes(_free(save))} are free)"
    return f"the disk of {save.output_dir} has no room for {wanted}; {stands}"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


def _of_any_process(problem: str | None) -> str | None:
    return next((each for each in gather_object([problem]) if each is not None), None)


def _remove_old(output_dir: Path, keep: int, best: int | None) -> None:
    """Delete all but the checkpoints of the highest steps, and the best."""
    for step, folder in sorted(steps_in(output_dir).items(), reverse=True)[keep:]:
        if step != best:
            _remove(folder)


def _remove(folder: Path) -> None:
    doomed = folder.parent / _DELETING
    try:
        doomed.mkdir(exist_ok=True)
        folder.rename(doomed / folder.name)
        _sync(folder.parent)
    except OSError as error:
        logger.warning("%s could not be deleted: %s", folder, error.strerror or error)
    else:
        _delete(doomed)


def _delete(folder: Path) -> None:
    """Somebody else's permissions are no reason to end a run."""
    try:
        shutil.rmtree(folder)
    except OSError as error:
        logger.warning("%s could not be deleted: %s", folder, error.strerror or error)


def _sync_all(folder: Path) -> None:
    for path in folder.rglob("*"):
        _sync(path)
    _sync(folder)


def _sync(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk itself."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
