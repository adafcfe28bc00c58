"""From which checkpoint a training goes on."""

from __future__ import annotations

from pathlib import Path

from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from rich.console import Console

from rlvr_vocab.errors import UserError
from rlvr_vocab.manifest import problem_with, set_aside
from rlvr_vocab.training.checkpoints import newest_checkpoint, set_broken_aside, steps_in
from rlvr_vocab.training.saving import clear_leftovers


def checkpoint_to_go_on_from(folder: Path, resume: str, console: Console) -> Path | None:
    """The checkpoint that training in `folder` goes on from, verified; None for a training from its start.

    The main process looks for it and tells the others. Folders that do not count lose their name, with a warning; so
    do those past a checkpoint that `resume` names.

    Raises:
        UserError: the named checkpoint does not count, or lies elsewhere.
    """
    found: list[Path | None] = [None]
    if PartialState().is_main_process:
        clear_leftovers(folder)
        named = None if resume in ("auto", "never") else Path(resume).expanduser()
        found = [_newest(folder, console) if named is None else _named(named, folder, console)]
    [checkpoint] = broadcast_object_list(found)
    if checkpoint is not None:
        console.print(f"going on from {checkpoint}", markup=False)
    return checkpoint


def _newest(folder: Path, console: Console) -> Path | None:
    for sentence in set_broken_aside(folder):
        console.print(f"warning: {sentence}", style="yellow", markup=False)
    return newest_checkpoint(folder)


def _named(checkpoint: Path, folder: Path, console: Console) -> Path:
    if checkpoint.resolve().parent != folder.resolve():
        raise UserError(
            f"resume={checkpoint}: the training that is to go on has its checkpoints in {folder}; name one of them"
        )
    problem = problem_with(checkpoint)
    if problem is not None:
        raise UserError(f"resume={checkpoint}: it does not count: {problem}")
    named = next(step for step, path in steps_in(folder).items() if path.resolve() == checkpoint.resolve())
    for step, path in steps_in(folder).items():
        if step > named:
            aside = set_aside(path, "later")
            console.print(f"{path.name} is set aside as {aside.name}", markup=False)
    return folder / checkpoint.name
