"""When a checkpoint counts: its manifest, written last, names every file with size and checksum."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

MANIFEST = "manifest.json"
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


def write_manifest(folder: Path) -> None:
    """List what `folder` holds; call it once everything else is written."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    entries = {str(path.relative_to(folder)): {"size": path.stat().st_size, "sha256": _sha256(path)} for path in files}
    (folder / MANIFEST).write_text(json.dumps({"files": entries}, indent=1) + "\n", encoding="utf-8")


def is_complete(folder: Path) -> bool:
    """Whether the manifest is there and every file it names has the size and checksum it says."""
    manifest = folder / MANIFEST
    if not manifest.is_file():
        return False
    try:
        entries = json.loads(manifest.read_text(encoding="utf-8"))["files"]
    except (ValueError, KeyError, TypeError):  # cut short while it was written
        return False
    return all(
        (folder / name).is_file()
        and (folder / name).stat().st_size == entry["size"]
        and _sha256(folder / name) == entry["sha256"]
        for name, entry in entries.items()
    )


def newest_checkpoint(output_dir: Path, at_step: int | None = None) -> Path | None:
    """The checkpoint of the highest step that counts, or the one of a given step if that counts."""
    steps = {
        int(match[1]): path for path in output_dir.glob("checkpoint-*") if (match := _CHECKPOINT.fullmatch(path.name))
    }
    wanted = sorted(steps, reverse=True) if at_step is None else [at_step] * (at_step in steps)
    return next((steps[step] for step in wanted if is_complete(steps[step])), None)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
