"""Folders that appear whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def folder_appearing_whole(folder: Path) -> Iterator[Path]:
    """A temporary folder to fill, which takes the name `folder` if the block ends well and is removed otherwise.

    Where `folder` has meanwhile been made by somebody else, theirs stays.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield partial
        make_readable(partial)
        if not folder.exists() or not any(folder.iterdir()):
            partial.replace(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def make_readable(folder: Path) -> None:
    """Let others read what lies in a folder: safetensors writes for its own user alone, and a server may be another."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
