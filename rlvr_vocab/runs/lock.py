"""A lock on the folder of a run, with the name of its holder in it."""

from __future__ import annotations

import errno
import fcntl
import json
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
_WAIT = "wait for it, stop it, or choose another"
_RETRY_SECONDS = 0.5
_LOCKED = (errno.EAGAIN, errno.EACCES)
_NO_LOCKS_HERE = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


def check_not_running(folder: Path) -> None:
    """Refuse a folder that another process is writing; nothing is left there.

    Raises:
        UserError: naming that process.
    """
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
    with _locked_file(folder, key, waiting) as file:
        file.truncate(0)
        file.write(json.dumps(_holder()))
        file.flush()
        try:
            yield
        finally:
            (folder / LOCK).unlink(missing_ok=True)
            with suppress(OSError):  # not empty: the run has begun
                for path in made:
                    path.rmdir()


@contextmanager
def _locked_file(folder: Path, key: str, waiting: Callable[[str], None] | None) -> Iterator[IO[str]]:
    reported = False
    while True:
        with _opened(folder, key) as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # no child inherits it, as it would a `flock`
            except OSError as error:
                if error.errno in _LOCKED:
                    file.seek(0)
                    holder = _describe(file.read())
                    if waiting is None:
                        raise UserError(f"{key}={folder}: {holder}; {_WAIT} {key}") from None
                    if not reported:
                        waiting(holder)
                    reported = True
                    time.sleep(_RETRY_SECONDS)
                    continue
                if error.errno not in _NO_LOCKS_HERE:
                    raise
                logger.warning("%s is on a file system without locks: see to it that no two jobs write it", folder)
            if _is_still_there(file, folder):  # its holder may have removed it while we opened it
                yield file
                return


def _opened(folder: Path, key: str) -> IO[str]:
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return (folder / LOCK).open("a+", encoding="utf-8")
        except FileNotFoundError:  # its last holder has removed the folder meanwhile
            continue
        except OSError as error:
            raise UserError(f"{key}={folder} cannot be written: {error.strerror or error}") from error


def _is_still_there(file: IO[str], folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), (folder / LOCK).stat())
    except FileNotFoundError:
        return False


def _holder() -> dict[str, object]:
    return {
        "process": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now().astimezone().isoformat(sep=" ", timespec="seconds"),
        "job": os.environ.get("SLURM_JOB_ID"),
    }


def _describe(text: str) -> str:
    try:
        holder = json.loads(text)
    except ValueError:  # it has the lock, and has not written its name yet
        return "another process has just begun to write it"
    job = f" (SLURM job {holder['job']})" if holder["job"] else ""
    return f"process {holder['process']} on {holder['host']}{job} has been writing it since {holder['since']}"
