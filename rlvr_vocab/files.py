"""Files that appear whole or not at all."""

from __future__ import annotations

import fcntl
import glob
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import TypeAdapter, ValidationError

from rlvr_vocab.errors import UserError


def atomic_write(path: Path, content: str | bytes, key: str = "") -> None:
    """Write a file and its folder; a reader finds the old content or the new one.

    Half a surrogate pair becomes its escape in JSON. With `key`, which names the file, a failure is a UserError.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace"))
        partial.replace(path)
    except OSError as error:
        if not key:
            raise
        raise UserError(f"{key}={path} cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            partial.unlink()


def json_text(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def fingerprint_of(rows: Iterable[Sequence[Any]]) -> str:
    """SHA-256 of rows of JSON values, in their order."""
    return hashlib.sha256(json.dumps(list(rows)).encode()).hexdigest()


def read_json(path: Path, kinds: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """The object in a JSON file; raises UserError without one, or for a value of another type than in `kinds`."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # UnicodeDecodeError among them
        raise UserError(f"{path} is not readable JSON ({error})") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} holds no JSON object")
    for key in kinds.keys() & content.keys():
        try:
            TypeAdapter(kinds[key]).validate_python(content[key], strict=True)
        except ValidationError as error:
            raise UserError(f"{path} is damaged: {key} is {content[key]!r:.40}") from error
    return content


def read_json_if_there(path: Path, kinds: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any] | None:
    """The same; None where there is no such file."""
    return read_json(path, kinds) if path.is_file() else None


@contextmanager
def atomic_dir(folder: Path, *, keep_existing: bool = False) -> Iterator[Path]:
    """A folder to fill, which takes the name `folder` if the block ends well and is removed otherwise.

    It lies beside as `<name>.partial-…`; the next process removes one that a killed process left.
    `keep_existing` is for a cache: a folder that another process made meanwhile is kept.
    UserError where `folder` cannot be made, is not empty, or cannot be replaced.
    """
    target = Path(os.path.realpath(folder))  # a link to an empty folder stays, and its target is replaced
    if not keep_existing:
        if _is_filled(target):
            raise UserError(f"{folder}: not empty; choose another folder")
        if target == Path.cwd().resolve() or os.path.ismount(target):
            raise UserError(f"{folder}: a working or mounted folder cannot be replaced; name a new folder in it")
    partial, lock = _make_partial(target, folder)
    try:
        yield partial
        make_readable(partial)
        try:
            partial.replace(target)  # the system itself refuses a folder that is not empty
        except OSError as error:
            if not (keep_existing and _is_filled(target)):
                raise UserError(f"{folder} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _is_filled(target: Path) -> bool:
    return os.path.lexists(target) and not (target.is_dir() and not any(target.iterdir()))


def _make_partial(target: Path, given: Path) -> tuple[Path, int | None]:
    prefix = f"{target.name}.partial-"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for left in target.parent.glob(f"{glob.escape(prefix)}*"):
            free = _lock(left)
            if free is not None:
                shutil.rmtree(left, ignore_errors=True)
                os.close(free)
        made = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        lock = _lock(made)  # before it has the name that other processes look for
        return made.rename(made.with_name(prefix + made.name.rpartition(".")[2])), lock
    except OSError as error:
        raise UserError(f"{given} cannot be written: {error.strerror or error}") from error


def _lock(folder: Path) -> int | None:
    """A lock on a folder, until it is closed or the process ends; None where another has it, or there are none."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def make_readable(folder: Path) -> None:
    """Let others read the files of a folder: safetensors writes for its own user alone, and a server may be another."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
