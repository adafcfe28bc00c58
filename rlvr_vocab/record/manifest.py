"""Lists of files with size and checksum: what was written, and what has become of it since.

A manifest carries a checksum of its own. A folder with one counts as long as every file in it is as the manifest says.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
_NOT_LISTED = (MANIFEST, "README.md")  # a card is there to be edited
Entries = dict[str, dict[str, Any]]


def write_manifest(folder: Path) -> None:
    """List what `folder` holds; call it once everything else is written."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in _NOT_LISTED)
    (folder / MANIFEST).write_text(manifest_text(entries_of(files, folder)), encoding="utf-8")


def entries_of(files: Iterable[Path], folder: Path) -> Entries:
    """Size and SHA-256 of each file, by its path seen from the folder."""
    return {str(path.relative_to(folder)): {"size": path.stat().st_size, "sha256": _sha256(path)} for path in files}


def manifest_text(entries: Entries) -> str:
    listed = json.dumps(entries, indent=1)
    own = hashlib.sha256(listed.encode()).hexdigest()
    return f'{{"files": {listed},\n"sha256": "{own}"}}\n'


def read_manifest(path: Path) -> Entries:
    """The entries of a manifest.

    Raises:
        FileNotFoundError: it is not there.
        ValueError: it is not what `manifest_text` gave.
    """
    try:
        text = path.read_text(encoding="utf-8")
        entries: Entries = json.loads(text)["files"]
        whole = bool(entries) and text == manifest_text(entries)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError):  # cut short, or no JSON any more
        whole = False
    if not whole:
        raise ValueError(f"{path.name} is damaged")
    return entries


def problem_with(folder: Path, *, hashed: bool = True) -> str | None:
    """Why a folder with a manifest does not count, naming the file; None for one that does.

    Args:
        hashed: compare the checksums too, for which all of the folder is read.
    """
    try:
        entries = read_manifest(folder / MANIFEST)
    except FileNotFoundError:
        return f"{MANIFEST} is missing: it was never finished"
    except ValueError as error:
        return str(error)
    problems = (problem_of(folder, name, entry, hashed=hashed) for name, entry in entries.items())
    return next((problem for problem in problems if problem is not None), None)


def is_complete(folder: Path) -> bool:
    return problem_with(folder) is None


def problem_of(
    folder: Path, name: str, entry: Mapping[str, Any], *, hashed: bool = True, grows: bool = False
) -> str | None:
    """What is wrong with a listed file; None where it is as it was written.

    Args:
        hashed: compare the checksum too, for which all of the file is read.
        grows: more may have been appended since.
    """
    path = folder / name
    if not path.is_file():
        return f"{name} is missing"
    size = path.stat().st_size
    if size < entry["size"] or (size > entry["size"] and not grows):
        return f"{name} has {size:,} bytes, {entry['size']:,} were written"
    if hashed and _sha256(path, entry["size"]) != entry["sha256"]:
        return f"{name} is not what was written: its checksum differs"
    return None


def set_aside(path: Path, why: str) -> Path:
    """Rename a file or a folder to `<why>-<name>`, which nothing reads."""
    aside, number = path.with_name(f"{why}-{path.name}"), 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{why}-{path.name}-{number}")
    return path.rename(aside)


def _sha256(path: Path, size: int | None = None) -> str:
    """Checksum of a file, or of its first bytes."""
    with path.open("rb") as file:
        if size is None or path.stat().st_size == size:
            return hashlib.file_digest(file, "sha256").hexdigest()
        return hashlib.sha256(file.read(size)).hexdigest()
