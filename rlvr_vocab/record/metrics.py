"""The logged metrics of a run, and the facts of its configuration that they are read by; no torch, no pandas."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from rlvr_vocab.errors import UserError
from rlvr_vocab.record.files import MEASURED

Row = Mapping[str, Any]

# Squares and sums of larger ones would leave the range of a float.
_LARGEST = 1e150


@dataclass(frozen=True)
class RewardFact:
    """One reward function of a run, by its logged name; `full_mark` is None where the configuration sets none."""

    name: str
    weight: float
    adaptive: bool
    full_mark: float | None = None
    reads_thought: str | None = None  # as it declares; None where it does not say


@dataclass(frozen=True)
class RunFacts:
    """The part of a run's configuration that its metrics are read by.

    `max_steps` is None where the number of epochs decides. `completions_per_step` are those of one process. `tools` has
    the names of functions and environment, `trainer` is `file.py:Class` of the user's own. `stages` has the facts of
    each stage, with its name in `stage`.
    """

    exp_name: str
    model: str
    dataset: str
    reasoning_vocab_size: int
    think_tags: tuple[str, str]
    rewards: tuple[RewardFact, ...]
    num_generations: int
    max_completion_length: int
    learning_rate: float
    max_steps: int | None
    use_vllm: bool
    completions_per_step: float
    tools: tuple[str, ...] = ()
    trainer: str = ""
    stage: str = ""
    stages: tuple[RunFacts, ...] = ()


# Metrics of a measurement on held-out problems, each with `eval/` before its name.
HELD_OUT_FIGURES = (*MEASURED, "mean_length", "clipped_ratio", "reasoning_share", "problems")

# The phases of a step, in their order; their seconds add up to `step_time`.
PHASES = (
    *("time/generation", "time/rewards", "time/logprobs", "time/forward", "time/backward", "time/optimizer"),
    *("time/waiting", "time/other"),
)
# The peak of memory in each of them, in GiB.
MEMORY_OF_PHASE = {name: name.replace("time/", "memory/") for name in PHASES}


@dataclass(frozen=True)
class RunRecord:
    """The metrics of a run, finished or not.

    `rows` has one for each logged step, oldest first; `evaluations` one for each on held-out problems during training;
    `thoughts` one for each reward of `thought_reading.json`.
    """

    folder: Path
    facts: RunFacts
    rows: tuple[Row, ...]
    evaluations: tuple[Row, ...] = ()
    summary: Row | None = None
    thoughts: Sequence[Row] = ()

    @property
    def is_finished(self) -> bool:
        return bool((self.summary or {}).get("finished"))

    @property
    def last_step(self) -> int:
        return int(self.rows[-1]["step"]) if self.rows else 0

    @property
    def steps(self) -> int:
        """Optimisation steps that it took, or has logged."""
        return int((self.summary or {}).get("steps", self.last_step))

    def series(self, metric: str) -> tuple[list[int], list[float]]:
        """Steps and values of the rows, for `eval/…` of the evaluations, that have the metric as a finite number."""
        rows = self.evaluations if metric.startswith("eval/") else self.rows
        found = [row for row in rows if is_number(row.get(metric))]
        return [row["step"] for row in found], [float(row[metric]) for row in found]


def is_number(value: Any) -> TypeGuard[float]:
    """Whether it is a number, finite, and its square too."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -_LARGEST < value < _LARGEST


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSONL file, without a last line that is half-written; UserError for a line that is no object."""
    text = path.read_bytes() if path.is_file() else b""
    # A completion may hold any other sign that breaks lines.
    lines = [(number, line) for number, line in enumerate(text.split(b"\n"), start=1) if line.strip()]
    rows: list[dict[str, Any]] = []
    for number, line in lines:
        try:
            row = json.loads(line)
        except ValueError as error:  # UnicodeDecodeError among them
            if number == lines[-1][0]:
                break
            raise UserError(f"{path}: line {number} is no JSON ({error})") from error
        if not isinstance(row, dict):
            raise UserError(f"{path}: line {number} holds {line[:40].decode(errors='replace').strip()}, not an object")
        rows.append(row)
    return rows


def read_metrics(path: Path) -> list[Row]:
    """The rows of a `metrics.jsonl`, each of a step or of a measurement; UserError for a row without its step."""
    rows = read_rows(path)
    for number, row in enumerate(rows, start=1):
        if not is_number(row.get("step")):
            raise UserError(f"{path}: row {number} has no number as its step")
        row["step"] = int(row["step"])
    return list(rows)


def is_step_row(row: Row) -> bool:
    """Whether a row has the metrics of an optimisation step, and not those of an evaluation, ours or TRL's."""
    return not any(name.startswith("eval/") for name in row)
