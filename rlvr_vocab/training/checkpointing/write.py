"""Writes and removes checkpoints; whenever a process is killed, every folder `checkpoint-<step>` is whole.

A checkpoint is written in `.saving/`, synced, given its manifest, synced again, and then renamed. An old one is renamed
before it is deleted. The next start clears the rest away.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from accelerate.utils import gather_object
from safetensors import SafetensorError

from rlvr_vocab.errors import OutOfRoom
from rlvr_vocab.record.manifest import MANIFEST, write_manifest
from rlvr_vocab.training.checkpointing.find import newest_checkpoint, steps_in

logger = logging.getLogger(__name__)

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
    full = _of_any_process(publishes and _less_is_free_than_the_newest_takes(output_dir))
    full = full or _of_any_process(_finds_the_disk_full(lambda: write(staged)))
    full = full or _of_any_process(publishes and _finds_the_disk_full(lambda: _publish(staged, output_dir)))
    if publishes:
        clear_leftovers(output_dir)
        if not full and keep is not None:
            _remove_old(output_dir, keep, best)
    return _no_room(output_dir, step) if full else None


def clear_leftovers(output_dir: Path) -> None:
    """Remove the leftovers of a save or a deletion that was killed."""
    for folder in (output_dir / _SAVING, output_dir / _DELETING):
        if folder.exists():
            _delete(folder)


def is_full(error: BaseException) -> bool:
    """Whether an error is that of a full disk."""
    if isinstance(error, OSError):
        return error.errno in _FULL
    return any(words in str(error) for words in _FULL_IN_WORDS)


@contextmanager
def report_disk_full(folder: Path) -> Iterator[None]:
    """Inside the block the error of a full disk becomes OutOfRoom, one line."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        if not is_full(error):
            raise
        what = f" ({error.filename})" if isinstance(error, OSError) and error.filename else ""
        raise OutOfRoom(f"the disk of {folder} is full{what}. Make room and give the same command again") from error


def _publish(staged: Path, output_dir: Path) -> None:
    _sync_all(staged)
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


def _finds_the_disk_full(work: Callable[[], None]) -> bool:
    try:
        work()
    except (OSError, RuntimeError, SafetensorError) as error:
        if not is_full(error):
            raise
        return True
    return False


def _no_room(output_dir: Path, step: int) -> str:
    whole = newest_checkpoint(output_dir, hashed=False)
    stands = "there is no earlier one" if whole is None else f"{whole.name} is intact"
    return f"the disk of {output_dir} has no room for checkpoint-{step}; {stands}"


def _of_any_process(found: bool) -> bool:
    return any(gather_object([found]))


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
    try:
        shutil.rmtree(folder)
    except OSError as error:
        logger.warning("%s could not be deleted: %s", folder, error.strerror or error)


def _sync_all(folder: Path) -> None:
    for path in folder.rglob("*"):
        _sync(path)
    _sync(folder)


def _sync(path: Path) -> None:
    """Sync a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
