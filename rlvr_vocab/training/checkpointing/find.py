"""Finds valid checkpoints: those whose manifest, written last, is there, and whose files are as it says."""

from __future__ import annotations

import re
from pathlib import Path

from accelerate import PartialState
from accelerate.utils import broadcast_object_list

from rlvr_vocab.record.manifest import problem_with, set_aside

_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


def newest_checkpoint(output_dir: Path, at_step: int | None = None, *, hashed: bool = True) -> Path | None:
    """The valid checkpoint of the highest step, or that of a given step; None where there is none.

    Args:
        hashed: compare checksums, or, for a message about a checkpoint that nobody loads, sizes alone.
    """
    steps = steps_in(output_dir)
    wanted = sorted(steps, reverse=True) if at_step is None else [at_step] * (at_step in steps)
    return next((steps[step] for step in wanted if problem_with(steps[step], hashed=hashed) is None), None)


def newest_checkpoint_for_all(output_dir: Path, at_step: int | None = None) -> Path | None:
    """The same for every process of a run, looked for, and its checksums taken, by the main one alone."""
    found = newest_checkpoint(output_dir, at_step) if PartialState().is_main_process else None
    [agreed] = broadcast_object_list([found])
    return agreed


def set_invalid_aside(output_dir: Path) -> list[str]:
    """Rename the folders that are newer than the newest valid checkpoint; a sentence on each."""
    sentences = []
    for _, folder in sorted(steps_in(output_dir).items(), reverse=True):
        problem = problem_with(folder)
        if problem is None:
            break
        aside = set_aside(folder, "broken")
        sentences.append(f"{folder} is not valid: {problem}; it is set aside as {aside.name}")
    return sentences


def steps_in(output_dir: Path) -> dict[int, Path]:
    """The folders that are named like checkpoints, by their step."""
    return {
        int(match[1]): path for path in output_dir.glob("checkpoint-*") if (match := _CHECKPOINT.fullmatch(path.name))
    }
