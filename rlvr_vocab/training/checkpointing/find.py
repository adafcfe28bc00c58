"""Finds valid checkpoints: the manifest, written last, lists their files, which have its sizes and hashes."""

from __future__ import annotations

import logging
import pickle
import re
from pathlib import Path

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from transformers import TrainerState
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_pt_utils import safe_globals

from rlvr_vocab.errors import UserError
from rlvr_vocab.record.manifest import problem_with, set_aside
from rlvr_vocab.vocab.weights import weights_fingerprint

logger = logging.getLogger(__name__)

_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
# Errors of reading a file as plain tensors.
_NOT_PLAIN = (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, TypeError, LookupError, AttributeError)


def problem_of_checkpoint(folder: Path, *, hashed: bool = True) -> str | None:
    """The fault of a checkpoint, with the file; None where it is valid. Not `hashed`: by sizes alone."""
    problem = problem_with(folder, hashed=hashed)
    if problem is not None:
        return problem
    try:
        weights_fingerprint(folder)
        path = folder / TRAINER_STATE_NAME
        if path.is_file():
            TrainerState.load_from_json(str(path))
        for path in sorted((*folder.glob("*.pt"), *folder.glob("*.pth"))):
            with safe_globals():
                torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except UserError as error:
        return str(error)
    except _NOT_PLAIN as error:
        return f"{path.name} cannot be read as plain data ({type(error).__name__})"
    return None


def newest_checkpoint(output_dir: Path, at_step: int | None = None, *, hashed: bool = True) -> Path | None:
    """The valid checkpoint of the highest step, or that of a given step; None where there is none."""
    steps = steps_in(output_dir)
    wanted = sorted(steps, reverse=True) if at_step is None else [at_step] * (at_step in steps)
    return next((steps[step] for step in wanted if problem_of_checkpoint(steps[step], hashed=hashed) is None), None)


def newest_checkpoint_for_all(output_dir: Path, at_step: int | None = None) -> Path | None:
    """The same for every process of a run; the main one searches."""
    found = newest_checkpoint(output_dir, at_step) if PartialState().is_main_process else None
    [agreed] = broadcast_object_list([found])
    return agreed


def checkpoint_for_all(output_dir: Path, resume: str | Path | bool | None) -> Path | None:
    """The checkpoint that a trainer resumes: the named one, checked by sizes, or, for True, the newest valid one."""
    if resume is True:
        for sentence in set_invalid_aside(output_dir) if PartialState().is_main_process else ():
            logger.warning(sentence)
        return newest_checkpoint_for_all(output_dir)
    problem = problem_of_checkpoint(Path(resume), hashed=False) if resume else None
    if problem is not None:
        raise UserError(f"{resume}: nothing can go on from it: {problem}")
    return Path(resume) if resume else None


def set_invalid_aside(output_dir: Path) -> list[str]:
    """Rename the folders that are newer than the newest valid checkpoint; return a message for each."""
    sentences = []
    for _, folder in sorted(steps_in(output_dir).items(), reverse=True):
        problem = problem_of_checkpoint(folder)
        if problem is None:
            break
        aside = set_aside(folder, "broken")
        sentences.append(f"{folder} is not valid: {problem}; it is set aside as {aside.name}")
    return sentences


def steps_in(output_dir: Path) -> dict[int, Path]:
    """The folders with the names of checkpoints, by their step."""
    return {
        int(match[1]): path for path in output_dir.glob("checkpoint-*") if (match := _CHECKPOINT.fullmatch(path.name))
    }
