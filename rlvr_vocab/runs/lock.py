"""A lock on the folder of a run, with the name of its holder in it."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import IO

from rlvr_vocab.errors import UserError

logger = logging.getLogger(__name__)

LOCK = ".lock"
_RETRY_SECONDS = 0.5


def check_not_running(folder: Path) -> None:
    """Raises UserError, which names the process, where another one is writing the folder; nothing is left there."""
    if (folder / LOCK).is_file():
        with only_writer(folder):
            pass


@contextmanager
def only_writer(folder: Path, key: str = "output_dir", waiting: Callable[[str], None] | None = None) -> Iterator[None]:
    """A block that only one process at a time is in for a folder, on any machine; a dead one holds nothing.

    Args:
        key: names the folder on the command line.
        waiting: called once with the holder of the lock, and the block is entered after it; None to refuse.

    Raises:
        UserError: another process holds the lock; or the folder cannot be made.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    reported = False
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = (folder / LOCK).open("a+", encoding="utf-8")
        except FileNotFoundError:  # its last holder has removed the folder meanwhile
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
    """Lock the file; the holder where another process has it."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # no child inherits it, as it would a `flock`
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            file.seek(0)
            return file.read() or "another process has just begun to write it"
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        logger.warning("%s: this file system has no locks; start no second job on this folder", file.name)
    return None


def _is_still_there(file: IO[str], folder: Path) -> bool:
    """Whether the file is the one in the folder; its last holder may have removed it before it was locked here."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), (folder / LOCK).stat())
    except FileNotFoundError:
        return False
