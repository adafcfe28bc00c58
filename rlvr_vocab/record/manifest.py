"""The `manifest.json` of a checkpoint or a model folder: its files with size and checksum.

A manifest has a checksum of its own. A folder is valid while every listed file has the recorded size and checksum.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
_NOT_LISTED = (MANIFEST, "README.md")  # a card is there to be edited
Entries = dict[str, dict[str, Any]]


def write_manifest(folder: Path) -> None:
    """List the files of `folder`; call it once everything else is written."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in _NOT_LISTED)
    entries = {str(path.relative_to(folder)): {"size": path.stat().st_size, "sha256": _sha256(path)} for path in files}
    (folder / MANIFEST).write_text(_manifest_text(entries), encoding="utf-8")


def _manifest_text(entries: Entries) -> str:
    listed = json.dumps(entries, indent=1)
    own = hashlib.sha256(listed.encode()).hexdigest()
    return f'{{"files": {listed},\n"sha256": "{own}"}}\n'


def _entries(folder: Path) -> Entries:
    """The entries of a folder's manifest; raises ValueError where it is not there, or damaged."""
    if not (folder / MANIFEST).is_file():
        raise ValueError(f"{MANIFEST} is missing: it was never finished")
    text = (folder / MANIFEST).read_text(encoding="utf-8", errors="replace")
    try:
        entries: Entries = json.loads(text)["files"]
        if entries and text == _manifest_text(entries):
            return entries
    except (ValueError, KeyError, TypeError):  # cut short, or no JSON any more
        pass
    raise ValueError(f"{MANIFEST} is damaged")


def problem_with(folder: Path, *, hashed: bool = True) -> str | None:
    """Why a folder with a manifest is not valid, naming the file; None for a valid one.

    With `hashed` the checksums are compared too, for which all of the folder is read.
    """
    try:
        entries = _entries(folder)
    except ValueError as error:
        return str(error)
    for name, entry in entries.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        size = path.stat().st_size
        if size != entry["size"]:
            return f"{name} has {size:,} bytes, {entry['size']:,} were written"
        if hashed and _sha256(path) != entry["sha256"]:
            return f"{name} is not what was written: its checksum differs"
    return None


def set_aside(path: Path, why: str) -> Path:
    """Rename a file or a folder to `<why>-<name>`, which nothing reads."""
    aside, number = path.with_name(f"{why}-{path.name}"), 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{why}-{path.name}-{number}")
    return path.rename(aside)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
