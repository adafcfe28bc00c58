"""The completions that a run has left, one Parquet file a step, read as they are asked for; no torch, no pandas."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rlvr_vocab.errors import UserError
from rlvr_vocab.record.files import STEP_FILES, step_files
from rlvr_vocab.record.manifest import problem_of, run_entries
from rlvr_vocab.record.results import KINDS, kind_in_words

_REWARD, _REASON = "reward/", "reason/"
# Figures of every token that are read only where they are asked for.
OF_EACH_TOKEN = ("sampling_logps", "sampling_entropies", "sampling_copy_entropies")
# A step of a large run is tens of megabytes with its ids.
_STEPS_KEPT = 4


@dataclass(frozen=True)
class SampledCompletion:
    """One completion of a logged step.

    Attributes:
        row: its place in the step's file, from 1.
        prompt: what the model saw, template and all.
        solution: the gold answer; empty where the problems have none.
        reward: weighted sum over the functions that scored it.
        rewards: what each function gave; None where it gave none.
        reasons: why each function gave it, where it says; empty in runs that did not record it.
        choice_bits: how far the choice among the ids of each token's text was from chance; empty where not known.
        task, difficulty: of the problem; empty where its set has no such column.
    """

    step: int
    row: int
    prompt: str
    completion: str
    solution: str
    reward: float
    advantage: float
    rewards: Mapping[str, float | None] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    prompt_ids: Sequence[int] = ()
    completion_ids: Sequence[int] = ()
    choice_bits: Sequence[float] = ()
    task: str = ""
    difficulty: str = ""

    @property
    def kind(self) -> str:
        return kind_in_words(self.task, self.difficulty)


class CompletionFiles:
    """The files of a run's folder `completions/`: `steps` lists them, `read` opens one.

    Args:
        folder: the folder `completions/` of a run; it need not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[int, Path] = {}
        self._kept: OrderedDict[int, pa.Table] = OrderedDict()
        self.refresh()

    def refresh(self) -> None:
        """Look again: a run that goes on has written more."""
        self._kept.clear()
        self._unchecked = run_entries(self.folder.parent)
        numbered = ((path.stem.removeprefix("step_"), path) for path in step_files(self.folder))
        self._files = {int(number): path for number, path in numbered if number.isdecimal()}

    @property
    def steps(self) -> list[int]:
        """The steps that there are files of, in their order."""
        return sorted(self._files)

    def path(self, step: int) -> Path:
        if step not in self._files:
            raise UserError(f"{self.folder}: no file of step {step} ({STEP_FILES})")
        return self._files[step]

    def read(self, step: int) -> list[SampledCompletion]:
        """All completions of a step.

        Raises:
            UserError: the step has no file, or it cannot be read: half-written, damaged, changed or gone.
        """
        return _completions(self.table(step), step)

    def read_row(self, step: int, row: int) -> SampledCompletion:
        """One completion of a step, by its row from 1; the last few steps that were asked for are kept.

        Raises:
            UserError: as in `read`, or the file has no such row.
        """
        if step not in self._kept:
            self._kept[step] = self.table(step)
            if len(self._kept) > _STEPS_KEPT:
                self._kept.popitem(last=False)
        if not 1 <= row <= len(self._kept[step]):
            raise UserError(f"{self.path(step)}: has no row {row}; its last one is {len(self._kept[step])}")
        [completion] = _completions(self._kept[step].slice(row - 1, 1), step, first_row=row)
        return completion

    def table(self, step: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Those of the columns that a step's file has; with None, all except the figures of each token."""
        path = self.path(step)
        name = f"{self.folder.name}/{path.name}"
        problem = problem_of(self.folder.parent, name, self._unchecked[name]) if name in self._unchecked else None
        if problem is not None:
            raise UserError(f"{self.folder.parent}: {problem}")
        self._unchecked.pop(name, None)
        try:
            # By the open file, so that one that is replaced meanwhile is still read as a whole.
            with path.open("rb") as content, pq.ParquetFile(content) as file:
                there = file.schema_arrow.names
                wanted = [name for name in there if (name in columns if columns else name not in OF_EACH_TOKEN)]
                return file.read(columns=wanted, use_threads=False)
        except (OSError, pa.ArrowException) as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"{path}: cannot be read, half-written or damaged ({reason})") from error


def _completions(table: pa.Table, step: int, first_row: int = 1) -> list[SampledCompletion]:
    return [_completion(cells, step, row) for row, cells in enumerate(table.to_pylist(), start=first_row)]


def _completion(cells: Mapping[str, Any], step: int, row: int) -> SampledCompletion:
    return SampledCompletion(
        step=step,
        row=row,
        prompt=_text(cells.get("prompt")),
        completion=_text(cells.get("completion")),
        solution=_text(cells.get("solution")),
        reward=_number(cells.get("reward")),
        advantage=_number(cells.get("advantage")),
        rewards={name: _score(value) for name, value in _under(_REWARD, cells)},
        reasons={name: _text(value) for name, value in _under(_REASON, cells) if value},
        prompt_ids=cells.get("prompt_ids") or (),
        completion_ids=cells.get("completion_ids") or (),
        choice_bits=cells.get("sampling_choice_bits") or (),
        **{name: _text(cells.get(name)) for name in KINDS},
    )


def _under(prefix: str, cells: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name.removeprefix(prefix), value) for name, value in cells.items() if name.startswith(prefix)]


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _score(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else float(value)
