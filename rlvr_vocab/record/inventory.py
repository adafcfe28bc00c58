"""The inventory of a run: its files with size and checksum, those that are damaged or lost, and copies. No torch.

A checkpoint holds `records/`: a list with size and checksum of what the run had written until then, and copies of the
small files that a run cannot go on without. The end of a run writes such a list beside its summary. A file that was
lost stays in every later list: its loss is never forgotten. What people edit (config.yaml, cards) is in none.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from rlvr_vocab.atomic_file import write_whole
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
    WANDB,
)
from rlvr_vocab.record.manifest import (
    MANIFEST,
    Entries,
    entries_of,
    manifest_text,
    problem_of,
    problem_with,
    read_manifest,
    set_aside,
)

RECORDS, _LIST = "records", "list.json"
LISTED_IN = "listed_in"  # what a summary calls the list that was written before it
_BEFORE, _STAGE_RECORDS = "evaluation/before.jsonl", f"stages/*/{STAGE_RECORD}"
_GROWING = (METRICS, CHANGES)
_COPIED = (*_GROWING, _BEFORE, _STAGE_RECORDS, WANDB)
# Written once; nothing can make them again.
_SAMPLED = (f"{COMPLETIONS}/*.parquet", "evaluation/step_*.jsonl", "evaluation/after_*.jsonl", "summary_*.json")
_AT_A_STEP = (*_GROWING, _BEFORE, _STAGE_RECORDS, *_SAMPLED)
_AT_THE_END = (
    *_GROWING,
    _BEFORE,
    "evaluation/after.jsonl",
    _STAGE_RECORDS,
    *_SAMPLED,
    PROBLEMS,
    ENVIRONMENT,
    f"{INITIAL_MODEL}/{MANIFEST}",  # which lists the rest of the folder
    f"{FINAL_MODEL}/{MANIFEST}",
    f"{FINAL_ADAPTER}/{MANIFEST}",
)
_NAMED = 3


@dataclass(frozen=True)
class RunInventory:
    """The newest list of files that a run has written.

    Attributes:
        at_the_end: whether it is that of a finished run, of which no file grows any more.
        copies: where copies of some files are; None where there are none.
        damaged: a sentence on each newer list that cannot be read.
    """

    folder: Path
    entries: Entries = field(default_factory=dict)
    at_the_end: bool = False
    copies: Path | None = None
    damaged: tuple[str, ...] = ()

    @classmethod
    def of(cls, folder: Path) -> RunInventory:
        """That of a run, finished or not; empty where it has reached no checkpoint."""
        damaged: list[str] = []
        at_the_end = _listed(folder, MANIFEST, damaged)
        if not at_the_end and not damaged and _says_that_it_is_listed(folder / SUMMARY):
            damaged.append(f"{MANIFEST}, which lists what the run consists of, is missing")
        lists = ((place, _listed(folder, f"{place.relative_to(folder)}/{_LIST}", damaged)) for place in _places(folder))
        copies, at_a_step = next(((place, found) for place, found in lists if found), (None, {}))
        return cls(folder, at_the_end or at_a_step, bool(at_the_end), copies, tuple(damaged))

    def problem(self, path: Path) -> str | None:
        """What is wrong with a file of the run; None for nothing known, or a file that is not listed."""
        name = str(path.relative_to(self.folder))
        return self._problem(name) if name in self.entries else None

    def paths(self, pattern: str) -> list[Path]:
        """The listed files that fit, there or not."""
        return [self.folder / name for name in self.entries if fnmatch(name, pattern)]

    def damage(self) -> list[str]:
        """Messages on damaged or lost files for a reader of the run; large files are compared by size alone."""
        found = {name: why for name in self.entries if (why := self._problem(name, thorough=False)) is not None}
        small = [
            f"{why}; the command that trained the run mends it" for name, why in found.items() if not _is_sampled(name)
        ]
        return [*self.damaged, *small, *_in_one(why for name, why in found.items() if _is_sampled(name))]

    def restore(self) -> tuple[list[str], list[str]]:
        """Put copies in the place of what is damaged or gone, and set aside what there is no copy of.

        Returns:
            What is to be said, and the files that are to be made anew; what was sampled cannot be.
        """
        found = {name: why for name in self.entries if (why := self._problem(name)) is not None}
        restored = [name for name in found if self._restored(name)]
        rest = {name: why for name, why in found.items() if name not in restored}
        for path in (self.folder / name for name in rest):
            if path.is_file() and path.name != MANIFEST:
                set_aside(path, "broken")
        lost = _in_one(why for name, why in rest.items() if _is_sampled(name))
        made_anew = [name for name in rest if not _is_sampled(name)]
        said = [f"{found[name]}; it is put back from {self.copies}" for name in restored]
        return [*said, *(f"lost: {line}" for line in lost), *(rest[name] for name in made_anew)], made_anew

    def lost(self) -> list[str]:
        """Sampled files that are no more."""
        return [name for name in self.entries if _is_sampled(name) and not (self.folder / name).is_file()]

    def _restored(self, name: str) -> bool:
        if self.copies is None or problem_of(self.copies, name, self.entries[name]) is not None:
            return False
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.copies / name, self.folder / name)
        return True

    def _problem(self, name: str, *, thorough: bool = True) -> str | None:
        hashed = thorough or not _is_sampled(name)
        grows = name in _GROWING and not self.at_the_end
        problem = problem_of(self.folder, name, self.entries[name], hashed=hashed, grows=grows)
        if problem is not None or Path(name).name != MANIFEST:
            return problem
        inside = problem_with(self.folder / Path(name).parent, hashed=thorough)
        return None if inside is None else f"{Path(name).parent}/{inside}"


def write_inventory(folder: Path, checkpoint: Path, earlier: Entries) -> Entries:
    """List, in a checkpoint that is being written, what a run has written until now, and copy what it needs to go on.

    Args:
        earlier: what the list before it held; what was sampled is not read again.
    """
    entries = _entries_until_now(folder, _AT_A_STEP, earlier)
    for path in _found(folder, _COPIED):
        copy = checkpoint / RECORDS / path.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    if entries:
        (checkpoint / RECORDS).mkdir(exist_ok=True)
        (checkpoint / RECORDS / _LIST).write_text(manifest_text(entries), encoding="utf-8")
    return entries


def write_final_inventory(folder: Path, summary: str) -> None:
    """List what a finished run consists of, its summary too, which is then to be written: it is finished by that."""
    entries = _entries_until_now(folder, _AT_THE_END, RunInventory.of(folder).entries)
    content = summary.encode()
    entries[SUMMARY] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    write_whole(folder / MANIFEST, manifest_text(entries))


def inventory_in(checkpoint: Path) -> Entries:
    """The list in a valid checkpoint; empty where a run of an earlier version wrote none."""
    place = checkpoint / RECORDS / _LIST
    return read_manifest(place) if place.is_file() else {}


def _entries_until_now(folder: Path, patterns: Iterable[str], earlier: Entries) -> Entries:
    sampled = {name: entry for name, entry in earlier.items() if _is_sampled(name)}
    new = [path for path in _found(folder, patterns) if str(path.relative_to(folder)) not in sampled]
    return {**sampled, **entries_of(new, folder)}


def _found(folder: Path, patterns: Iterable[str]) -> list[Path]:
    return [
        path for pattern in patterns for path in sorted(folder.glob(pattern)) if not path.name.startswith("broken-")
    ]


def _places(folder: Path) -> list[Path]:
    """The folders of records in the checkpoints of a run, the newest first."""
    found = []
    for path in [*folder.glob(f"checkpoint-*/{RECORDS}"), *folder.glob(f"stages/*/checkpoint-*/{RECORDS}")]:
        stage, checkpoint = path.parent.parent.name.partition("_")[0], path.parent.name.removeprefix("checkpoint-")
        if checkpoint.isdecimal():
            found.append((int(stage) if stage.isdecimal() else 0, int(checkpoint), path))
    return [path for _, _, path in sorted(found, reverse=True)]


def _listed(folder: Path, name: str, damaged: list[str]) -> Entries:
    try:
        return read_manifest(folder / name)
    except FileNotFoundError:
        return {}
    except ValueError:
        damaged.append(f"{name} is damaged")
        return {}


def _says_that_it_is_listed(summary: Path) -> bool:
    return summary.is_file() and f'"{LISTED_IN}"' in summary.read_text(encoding="utf-8", errors="replace")


def _is_sampled(name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in _SAMPLED)


def _in_one(sentences: Iterable[str]) -> list[str]:
    """Many sentences as one: the first few and the last."""
    listed = list(sentences)
    more = [f"{len(listed) - _NAMED} more, the last: {listed[-1]}"] if len(listed) > _NAMED else []
    return ["; ".join([*listed[:_NAMED], *more])] if listed else []
