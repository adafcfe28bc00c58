"""Lists of files with size and checksum: `manifest.json` of a checkpoint, of a model folder, of a finished run.

A manifest has a checksum of its own. A folder is valid while every listed file has the recorded size and checksum.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rlvr_vocab.files import atomic_write
from rlvr_vocab.record.files import (
    CHANGES,
    ENVIRONMENT,
    FINAL_ADAPTER,
    FINAL_MODEL,
    INITIAL_MODEL,
    METRICS,
    PROBLEMS,
    STAGE_RECORD,
    SUMMARY,
)

MANIFEST = "manifest.json"
_NOT_LISTED = (MANIFEST, "README.md")  # a card is there to be edited
# The records of a finished run; the manifest of a model lists the rest of its folder. People edit config.yaml, and
# `report` writes its page again.
_OF_A_RUN = (
    *(METRICS, CHANGES, PROBLEMS, ENVIRONMENT, "summary_*.json", f"stages/*/{STAGE_RECORD}"),
    *("evaluation/before.jsonl", "evaluation/after*.jsonl"),
    *(f"{model}/{MANIFEST}" for model in (INITIAL_MODEL, FINAL_MODEL, FINAL_ADAPTER)),
)
Entries = dict[str, dict[str, Any]]


def write_manifest(folder: Path) -> None:
    """List the files of `folder`; call it once everything else is written."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in _NOT_LISTED)
    (folder / MANIFEST).write_text(_manifest_text(_listed(files, folder)), encoding="utf-8")


def write_run_manifest(folder: Path, summary: str) -> None:
    """List the records of a finished run, and the summary, which the caller writes next: that marks it as finished."""
    files = sorted({path for pattern in _OF_A_RUN for path in folder.glob(pattern)})
    content = summary.encode()
    own = {SUMMARY: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}}
    atomic_write(folder / MANIFEST, _manifest_text(_listed(files, folder) | own))


def _listed(files: Iterable[Path], folder: Path) -> Entries:
    return {str(path.relative_to(folder)): {"size": path.stat().st_size, "sha256": _sha256(path)} for path in files}


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

    Args:
        hashed: compare the checksums too, for which all of the folder is read.
    """
    try:
        entries = _entries(folder)
    except ValueError as error:
        return str(error)
    problems = (_problem_of(folder, name, entry, hashed) for name, entry in entries.items())
    return next((problem for problem in problems if problem is not None), None)


def damage_of_run(folder: Path, *, hashed: bool = False) -> tuple[str, ...]:
    """A sentence on each damaged or lost record or model of a finished run, which begins with its path.

    Args:
        hashed: read the weights too; otherwise only their sizes are compared.
    """
    if not (folder / SUMMARY).is_file() or not (folder / MANIFEST).is_file():
        return ()
    try:
        entries = _entries(folder)
    except ValueError as error:
        return (str(error),)
    found = []
    for name, entry in entries.items():
        problem, parent = _problem_of(folder, name, entry, hashed=True), Path(name).parent
        if problem is None and Path(name).name == MANIFEST:
            inside = problem_with(folder / parent, hashed=hashed)
            problem = None if inside is None else f"{parent}/{inside}"
        if problem is not None:
            found.append(problem)
    return tuple(found)


def _problem_of(folder: Path, name: str, entry: Mapping[str, Any], hashed: bool) -> str | None:
    """Why a listed file is not as it was written; None for one that is."""
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
