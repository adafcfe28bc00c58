"""Folders that appear whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlvr_vocab.errors import UserError


@contextmanager
def folder_appearing_whole(folder: Path, *, theirs_stays: bool = False) -> Iterator[Path]:
    """A temporary folder to fill, which takes the name `folder` if the block ends well and is removed otherwise.

    Enter it before the work that fills it: a place that cannot be written is told here.

    Args:
        theirs_stays: for a cache, where several may make the same: what somebody else has put there is kept, and
            the temporary folder given up. Else that is refused, before the block and after it.

    Raises:
        UserError: `folder` cannot be made, is not empty, or is one whose place no other can take.
    """
    target = Path(os.path.realpath(folder))  # a link to an empty folder stays, and what it leads to is replaced
    if not theirs_stays:
        _require_free(target, folder)
    partial = _made_beside(target, folder)
    try:
        yield partial
        make_readable(partial)
        _take_place(partial, target, folder, theirs_stays)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _require_free(target: Path, given: Path) -> None:
    if _filled(target):
        raise UserError(f"{given}: not empty; choose another folder")
    if target == Path(os.path.realpath(os.curdir)) or os.path.ismount(target):
        raise UserError(f"{given}: the working folder, or a mounted one, cannot be replaced; name a new folder in it")


def _filled(target: Path) -> bool:
    return os.path.lexists(target) and not (target.is_dir() and not any(target.iterdir()))


def _made_beside(target: Path, given: Path) -> Path:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise UserError(f"{given} cannot be written: {error.strerror or error}") from error


def _take_place(partial: Path, target: Path, given: Path, theirs_stays: bool) -> None:
    try:
        partial.replace(target)  # only a folder that is absent or empty: the system itself refuses any other
    except OSError as error:
        if theirs_stays and _filled(target):
            return
        raise UserError(f"{given} cannot be written: {error.strerror or error}") from error


def make_readable(folder: Path) -> None:
    """Let others read what lies in a folder: safetensors writes for its own user alone, and a server may be another."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
