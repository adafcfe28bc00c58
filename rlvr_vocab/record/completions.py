"""The completions of a run, one Parquet file a step, read as they are asked for; no torch, no pandas."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rlvr_vocab.errors import UserError
from rlvr_vocab.record.files import step_files
from rlvr_vocab.record.results import KINDS

# Columns with a value per token, read only where they are asked for.
OF_EACH_TOKEN = ("sampling_logps",)
_OF_EACH_COMPLETION = {"prompt", "completion", "reward"}
# A step of a large run is tens of megabytes with its ids.
_STEPS_KEPT = 4


@dataclass(frozen=True)
class SampledCompletion:
    """One completion of a logged step; `row` is its place in the step's file, from 1.

    `prompt` has the chat template applied. `solution` is the gold answer, empty where the problems have none. `reward`
    is the weighted sum over the functions that scored it; `rewards` (None for no score) and `reasons` are by function.
    With tools `completion` is the last turn, `messages` are all, and `segments` the lengths of the runs of sampled and
    of given ids in turn, the first of them sampled; without, both are empty.
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
    task: str = ""
    difficulty: str = ""
    messages: Sequence[Mapping[str, Any]] = ()
    segments: Sequence[int] = ()


class CompletionFiles:
    """The files of a run's folder `completions/`, which need not exist yet."""

    def __init__(self, folder: Path) -> None:
        numbered = ((path.stem.removeprefix("step_"), path) for path in step_files(folder))
        self._files = {int(number): path for number, path in numbered if number.isdecimal()}
        self._kept: dict[int, pa.Table] = {}

    @property
    def steps(self) -> list[int]:
        """The steps that have a file, in their order."""
        return sorted(self._files)

    def read(self, step: int) -> list[SampledCompletion]:
        """All completions of a step; UserError for a damaged or lost file."""
        return [_completion(cells, step, row) for row, cells in enumerate(self.table(step).to_pylist(), start=1)]

    def read_row(self, step: int, row: int) -> SampledCompletion:
        """One completion of a step, by its row from 1; the tables of the last few steps are kept."""
        if step not in self._kept:
            self._kept = dict([*self._kept.items()][1 - _STEPS_KEPT :]) | {step: self.table(step)}
        [cells] = self._kept[step].slice(row - 1, 1).to_pylist()
        return _completion(cells, step, row)

    def table(self, step: int, columns: Sequence[str] | None = None) -> pa.Table:
        """The named columns of a step's file, by default all but `OF_EACH_TOKEN`; UserError for a damaged file."""
        path = self._files[step]
        try:
            # Through the open file, so that one that is replaced meanwhile is still read as a whole.
            with path.open("rb") as content, pq.ParquetFile(content) as file:
                there = file.schema_arrow.names
                missing = _OF_EACH_COMPLETION.intersection(columns or _OF_EACH_COMPLETION).difference(there)
                if missing:
                    raise UserError(f"{path}: no file of a run's completions (without the column {min(missing)})")
                wanted = [name for name in there if (name in columns if columns else name not in OF_EACH_TOKEN)]
                return file.read(columns=wanted, use_threads=False)
        except (OSError, pa.ArrowException) as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"{path}: cannot be read, half-written or damaged ({reason})") from error


def sampled_flags(segments: Sequence[int], length: int) -> list[bool]:
    """Whether the model sampled each of `length` ids; all of them without segments."""
    return [place % 2 == 0 for place, size in enumerate(segments or [length]) for _ in range(size)]


def _completion(cells: Mapping[str, Any], step: int, row: int) -> SampledCompletion:
    def text(name: str) -> str:
        return "" if cells.get(name) is None else str(cells[name])

    def number(name: str) -> float:
        return math.nan if cells.get(name) is None else float(cells[name])

    scores = {name.removeprefix("reward/"): number(name) for name in cells if name.startswith("reward/")}
    reasons = {name.removeprefix("reason/"): text(name) for name in cells if name.startswith("reason/")}
    return SampledCompletion(
        step=step,
        row=row,
        prompt=text("prompt"),
        completion=text("completion"),
        solution=text("solution"),
        reward=number("reward"),
        advantage=number("advantage"),
        rewards={name: None if math.isnan(score) else score for name, score in scores.items()},
        reasons={name: reason for name, reason in reasons.items() if reason},
        prompt_ids=cells.get("prompt_ids") or (),
        completion_ids=cells.get("completion_ids") or (),
        messages=json.loads(cells["messages"]) if cells.get("messages") else (),
        segments=cells.get("segments") or (),
        **{name: text(name) for name in KINDS},
    )
