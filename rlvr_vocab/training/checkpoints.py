"""Which checkpoints count, and what is wrong with those that do not.

A checkpoint counts once its manifest, written last, names every file with size and checksum, and as long as all of
them are as it says. The manifest carries a checksum of its own.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list

MANIFEST = "manifest.json"
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


def write_manifest(folder: Path) -> None:
    """List what `folder` holds; call it once everything else is written."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    entries = {str(path.relative_to(folder)): {"size": path.stat().st_size, "sha256": _sha256(path)} for path in files}
    (folder / MANIFEST).write_text(_manifest_text(entries), encoding="utf-8")


def problem_with(folder: Path, checksums: bool = True) -> str | None:
    """Why a checkpoint does not count, naming the file; None for one that does.

    Args:
        checksums: read all files through; without it their sizes decide, which takes no time.
    """
    try:
        text = (folder / MANIFEST).read_text(encoding="utf-8")
        entries = json.loads(text)["files"]
        whole = bool(entries) and text == _manifest_text(entries)
    except FileNotFoundError:
        return f"{MANIFEST} is missing: it was never finished"
    except (OSError, ValueError, KeyError, TypeError):  # cut short, or no JSON any more
        whole = False
    if not whole:
        return f"{MANIFEST} is damaged"
    found = (_problem_of(folder, name, entry, checksums) for name, entry in entries.items())
    return next((problem for problem in found if problem), None)


def is_complete(folder: Path) -> bool:
    return problem_with(folder) is None


def newest_checkpoint(output_dir: Path, at_step: int | None = None, checksums: bool = True) -> Path | None:
    """The checkpoint of the highest step that counts, or the one of a given step if that counts.

    Args:
        checksums: whether a file's content counts, or, for words about a checkpoint that nobody loads, its size alone.
    """
    steps = steps_in(output_dir)
    wanted = sorted(steps, reverse=True) if at_step is None else [at_step] * (at_step in steps)
    return next((steps[step] for step in wanted if problem_with(steps[step], checksums) is None), None)


def newest_checkpoint_for_all(output_dir: Path, at_step: int | None = None) -> Path | None:
    """The same for every process of a run, looked for, and its checksums taken, by the main one alone."""
    found = newest_checkpoint(output_dir, at_step) if PartialState().is_main_process else None
    [agreed] = broadcast_object_list([found])
    return agreed


def set_broken_aside(output_dir: Path) -> list[str]:
    """Give the folders that are newer than the newest checkpoint that counts another name; a sentence on each."""
    sentences = []
    for _, folder in sorted(steps_in(output_dir).items(), reverse=True):
        problem = problem_with(folder)
        if problem is None:
            break
        aside = set_aside(folder, "broken")
        sentences.append(f"{folder} does not count: {problem}; it is set aside as {aside.name}")
    return sentences


def set_aside(folder: Path, why: str) -> Path:
    """Rename a checkpoint to `<why>-checkpoint-<step>`, which no resume takes."""
    aside, number = folder.with_name(f"{why}-{folder.name}"), 1
    while aside.exists():
        number += 1
        aside = folder.with_name(f"{why}-{folder.name}-{number}")
    return folder.rename(aside)


def steps_in(output_dir: Path) -> dict[int, Path]:
    """The folders that are named like checkpoints, by their step."""
    return {
        int(match[1]): path for path in output_dir.glob("checkpoint-*") if (match := _CHECKPOINT.fullmatch(path.name))
    }


def _problem_of(folder: Path, name: str, entry: dict[str, Any], checksums: bool) -> str | None:
    path = folder / name
    if not path.is_file():
        return f"{name} is missing"
    size = path.stat().st_size
    if size != entry["size"]:
        return f"{name} has {size:,} bytes, {entry['size']:,} were written"
    if checksums and _sha256(path) != entry["sha256"]:
        return f"{name} is not what was written: its checksum differs"
    return None


def _manifest_text(entries: dict[str, Any]) -> str:
    listed = json.dumps(entries, indent=1)
    own = hashlib.sha256(listed.encode()).hexdigest()
    return f'{{"files": {listed},\n"sha256": "{own}"}}\n'


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
