"""Lists of files with size and checksum: what was written, and what has become of it since.

A manifest carries a checksum of its own. A folder with one counts as long as every file in it is as the manifest says.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from rlvr_vocab.files import atomic_write
from rlvr_vocab.record.files import (
    CHANGES,
    COMPLETIONS,
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


def problem_of(folder: Path, name: str, entry: Mapping[str, Any], *, hashed: bool = True) -> str | None:
    """What is wrong with a listed file; None where it is as it was written.

    Args:
        hashed: compare the checksum too, for which all of the file is read.
    """
    path = folder / name
    if not path.is_file():
        return f"{name} is missing"
    size = path.stat().st_size
    if size != entry["size"]:
        return f"{name} has {size:,} bytes, {entry['size']:,} were written"
    if hashed and _sha256(path) != entry["sha256"]:
        return f"{name} is not what was written: its checksum differs"
    return None


# What a finished run consists of; the manifest of a model lists the rest of its folder. People edit config.yaml and
# cards, `report` writes its page again.
_SAMPLED = (f"{COMPLETIONS}/*.parquet", "evaluation/step_*.jsonl")
_OF_A_RUN = (
    *_SAMPLED,
    *(METRICS, CHANGES, PROBLEMS, ENVIRONMENT, "summary_*.json", f"stages/*/{STAGE_RECORD}"),
    *("evaluation/before.jsonl", "evaluation/after*.jsonl"),
    *(f"{model}/{MANIFEST}" for model in (INITIAL_MODEL, FINAL_MODEL, FINAL_ADAPTER)),
)
_NAMED = 3


def write_run_manifest(folder: Path, summary: str) -> None:
    """List what a finished run consists of, and the summary, which is then to be written: it is finished by that."""
    files = sorted({path for pattern in _OF_A_RUN for path in folder.glob(pattern)})
    content = summary.encode()
    entries = entries_of([path for path in files if not path.name.startswith("broken-")], folder)
    entries[SUMMARY] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    atomic_write(folder / MANIFEST, manifest_text(entries))


def run_entries(folder: Path) -> Entries:
    """What the manifest of a finished run lists; nothing for a run without one, or with a damaged one."""
    try:
        return read_manifest(folder / MANIFEST)
    except (FileNotFoundError, ValueError):
        return {}


def problem_in_run(folder: Path, path: Path) -> str | None:
    """What is wrong with a file of a finished run; None for nothing known."""
    name = str(path.relative_to(folder))
    entry = run_entries(folder).get(name)
    return None if entry is None else problem_of(folder, name, entry)


def damage_of_run(folder: Path, *, hashed: bool = False) -> tuple[list[str], list[str]]:
    """Sentences on files of a finished run that are damaged or lost: on its outcome and records, and on samples.

    Args:
        hashed: read weights and samples too, which else are compared by their size alone.
    """
    if not (folder / SUMMARY).is_file():
        return [], []
    try:
        entries = read_manifest(folder / MANIFEST)
    except FileNotFoundError:
        return [], []
    except ValueError as error:
        return [str(error)], []
    records: list[str] = []
    samples: list[str] = []
    for name, entry in entries.items():
        sampled = any(fnmatch(name, pattern) for pattern in _SAMPLED)
        problem = problem_of(folder, name, entry, hashed=hashed or not sampled)
        if problem is None and Path(name).name == MANIFEST:
            inside = problem_with(folder / Path(name).parent, hashed=hashed)
            problem = None if inside is None else f"{Path(name).parent}/{inside}"
        if problem is not None:
            (samples if sampled else records).append(problem)
    return records, _in_one(samples)


def _in_one(sentences: list[str]) -> list[str]:
    """Many sentences as one: the first few and the last."""
    rest = [f"{len(sentences) - _NAMED} more, the last: {sentences[-1]}"] if len(sentences) > _NAMED else []
    return ["; ".join([*sentences[:_NAMED], *rest])] if sentences else []


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
