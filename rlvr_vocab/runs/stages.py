"""The stages of a run: where each keeps its checkpoints, what it came to, and the checkpoint that it goes on from.

A run in one piece is a single stage without a name, whose checkpoints lie in the run's own folder. Those of a named
one lie in `stages/<number>_<name>/`; its `stage.json`, written when it has ended, is what a resumed run goes by.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from datasets import Dataset
from rich.console import Console

from rlvr_vocab.config.sections import RunSettings, UntilSettings
from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_write, read_json
from rlvr_vocab.record.files import STAGE_RECORD
from rlvr_vocab.record.manifest import set_aside
from rlvr_vocab.runs.folder import RESUME_MODES
from rlvr_vocab.training.checkpointing.find import (
    newest_checkpoint,
    newest_checkpoint_for_all,
    problem_of_checkpoint,
    set_invalid_aside,
    steps_in,
)
from rlvr_vocab.training.checkpointing.write import clear_leftovers


@dataclass(frozen=True)
class StageRecord:
    """What a stage came to.

    Attributes:
        ended_by: `steps`, or the goal that it reached.
        steps_without_signal: logged steps in which no group held different rewards: their policy gradient was zero.
        reward_failures: rows on which a reward function failed, by its name.
        drawn: which problems were drawn and which passed over, where the training chose them.
    """

    name: str
    steps: int
    ended_by: str
    steps_without_signal: int
    reward_failures: dict[str, int]
    seconds: float
    drawn: dict[str, Any] | None = None


_KINDS = {"steps": int, "ended_by": str, "steps_without_signal": int, "reward_failures": dict, "seconds": (int, float)}


@dataclass(frozen=True)
class Stage:
    """One stage, ready to be trained: its place in the run, its problems, and how many tokens each prompt has."""

    number: int
    of: int
    name: str
    settings: RunSettings
    until: UntilSettings | None
    train: Dataset
    prompt_lengths: tuple[int, ...]

    @property
    def title(self) -> str:
        return f"stage {self.number}/{self.of} {self.name}" if self.name else "GRPO"

    @property
    def folder(self) -> Path:
        """Where its checkpoints go."""
        run_folder = self.settings.output_dir
        return run_folder / "stages" / f"{self.number}_{self.name}" if self.name else run_folder

    def record(self) -> StageRecord | None:
        """What it came to; None as long as it has not ended."""
        path = self.folder / STAGE_RECORD
        if not path.is_file():
            return None
        try:
            return StageRecord(**read_json(path, _KINDS))
        except (UserError, TypeError) as error:
            raise UserError(f"{path} is not readable ({error}); remove it to train this stage again") from error

    def write_record(self, record: StageRecord) -> None:
        """Write down that the stage has ended; its weights are saved before."""
        atomic_write(self.folder / STAGE_RECORD, json.dumps(asdict(record), indent=2) + "\n")

    def final_checkpoint(self, record: StageRecord) -> Path | None:
        """The weights that the stage ended with; None where they are not whole any more."""
        return newest_checkpoint_for_all(self.folder, at_step=record.steps)

    def checkpoint_to_resume(self, resume: str, console: Console) -> Path | None:
        """The checkpoint that the stage goes on from, verified; None for a training from its start.

        The main process looks for it and tells the others. Broken checkpoints are renamed, with a warning; so are
        those past a checkpoint that `resume` names.

        Raises:
            UserError: the named checkpoint is not valid, or lies elsewhere.
        """
        found: list[Path | None] = [None]
        if PartialState().is_main_process:
            clear_leftovers(self.folder)
            if resume in RESUME_MODES:
                for sentence in set_invalid_aside(self.folder):
                    console.print(f"warning: {sentence}", style="yellow", markup=False)
                found = [newest_checkpoint(self.folder)]
            else:
                found = [_named_checkpoint(Path(resume).expanduser(), self.folder, console)]
        [checkpoint] = broadcast_object_list(found)
        if checkpoint is not None:
            console.print(f"going on from {checkpoint}", markup=False)
        return checkpoint


def ended_records(stages: Sequence[Stage]) -> list[StageRecord]:
    """The records of the stages that have ended, from the first on.

    Raises:
        UserError: a later one has ended, and an earlier one has not.
    """
    records = [stage.record() for stage in stages]
    ended = list(takewhile(lambda record: record is not None, records))
    for stage, record in zip(stages[len(ended) :], records[len(ended) :], strict=True):
        if record is not None:
            missing = stages[len(ended)]
            raise UserError(
                f"{stage.folder} has ended, but {missing.title}, which comes before it, has not: remove that folder "
                "too, and summary.json, to train both again"
            )
    return [record for record in ended if record is not None]


def _named_checkpoint(checkpoint: Path, folder: Path, console: Console) -> Path:
    if checkpoint.resolve().parent != folder.resolve():
        raise UserError(
            f"resume={checkpoint}: the training that is to go on has its checkpoints in {folder}; name one of them"
        )
    problem = problem_of_checkpoint(checkpoint)
    if problem is not None:
        raise UserError(f"resume={checkpoint}: it is not valid: {problem}")
    named = next(step for step, path in steps_in(folder).items() if path.resolve() == checkpoint.resolve())
    for step, path in steps_in(folder).items():
        if step > named:
            aside = set_aside(path, "later")
            console.print(f"{path.name} is set aside as {aside.name}", markup=False)
    return folder / checkpoint.name
