"""Where the models of a run lie, and the step that each has reached."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rlvr_vocab.analysis.vocabulary.sampled import step_of
from rlvr_vocab.record.files import COMPLETIONS, FINAL_ADAPTER, FINAL_MODEL, step_files
from rlvr_vocab.record.metrics import RunRecord, is_number

MOST_CHECKPOINTS = 12
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
_STAGE = re.compile(r"\d+_(.+)")


class ModelFolder(NamedTuple):
    """A checkpoint, or the final model; `step` is of the whole run."""

    step: int
    name: str
    path: Path


def model_folders(record: RunRecord) -> tuple[list[ModelFolder], list[str]]:
    """Checkpoints in the order of their steps and the final model last, at most `MOST_CHECKPOINTS`, and notes."""
    notes: list[str] = []
    there = sorted([*_own(record.folder), *_of_stages(record, notes)], key=lambda each: each.step)
    final = next((path for name in (FINAL_MODEL, FINAL_ADAPTER) if (path := record.folder / name).is_dir()), None)
    if final is not None:
        steps = _steps_taken(record, there)
        there = [each for each in there if each.step < steps] + [ModelFolder(steps, final.name, final)]
    if len(there) > MOST_CHECKPOINTS:
        notes.append(f"Of {len(there)} checkpoints {MOST_CHECKPOINTS} were read, evenly spread.")
        there = [there[at] for at in np.linspace(0, len(there) - 1, MOST_CHECKPOINTS).round().astype(int)]
    return there, notes


def _own(folder: Path) -> Iterator[ModelFolder]:
    for path in folder.glob("checkpoint-*"):
        if number := _CHECKPOINT.fullmatch(path.name):
            yield ModelFolder(int(number[1]), path.name, path)


def _of_stages(record: RunRecord, notes: list[str]) -> Iterator[ModelFolder]:
    """Those of the stages, whose folders count the steps of the stage alone."""
    for folder in sorted((record.folder / "stages").glob("*_*")):
        name = _STAGE.fullmatch(folder.name)
        own = list(_own(folder))
        if name is None or not own:
            continue
        first = _first_step(record, name[1])
        if first is None:
            notes.append(f"No logged step says where stage {name[1]} begins: its checkpoints were left out.")
            continue
        for each in own:
            yield ModelFolder(first + each.step, f"{folder.name}/{each.name}", each.path)


def _first_step(record: RunRecord, stage: str) -> int | None:
    """The steps before a stage, from any row of it."""
    rows = (row for row in record.rows if row.get("stage") == stage and is_number(row.get("stage_step")))
    row = next(rows, None)
    return None if row is None else int(row["step"]) - int(row["stage_step"])


def _steps_taken(record: RunRecord, checkpoints: list[ModelFolder]) -> int:
    """How far the run came, by what it left."""
    summary = record.summary or {}
    if is_number(summary.get("steps")):
        return int(summary["steps"])
    logged = [int(row["step"]) for row in record.rows[-1:]]
    sampled = [step for file in step_files(record.folder / COMPLETIONS) if (step := step_of(file)) is not None]
    return max([0, *logged, *sampled, *(each.step for each in checkpoints)])
