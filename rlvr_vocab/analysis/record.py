"""What a run has logged, and the facts of its configuration that a reader of it needs; no torch, no pandas."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]

# What marks a row of an optimisation step, and one of a measurement on held-out problems during training.
OF_A_STEP, OF_AN_EVALUATION = "loss", "eval/accuracy"


@dataclass(frozen=True)
class RewardFact:
    """One reward function of a run, by the name it is logged as and the one it was asked for by."""

    name: str
    weight: float
    adaptive: bool
    asked_as: str = ""


@dataclass(frozen=True)
class RunFacts:
    """What of a run's configuration its figures are read by.

    Attributes:
        max_steps: optimisation steps that it was to take; None where its epochs decide.
        think_tags: what opens and closes thinking.
        reasoning_vocab_size: number of reasoning tokens; 0 for a baseline.
        reasoning_mode: `expand` or `replace`.
        reasoning_copies: how many of them there are for each standard token, on average; 0 for a baseline.
    """

    exp_name: str
    seed: int
    model: str
    dataset: str
    reasoning_vocab_size: int
    think_tags: tuple[str, str]
    rewards: tuple[RewardFact, ...]
    num_generations: int
    max_completion_length: int
    temperature: float
    learning_rate: float
    lr_scheduler_type: str
    beta: float
    max_grad_norm: float
    num_iterations: int
    max_steps: int | None
    use_vllm: bool
    reasoning_mode: str = "expand"
    reasoning_copies: float = 0.0


@dataclass(frozen=True)
class RunRecord:
    """A run, finished or not, as its folder tells it.

    Attributes:
        rows: one for each logged step, oldest first.
        evaluations: one for each measurement on held-out problems during training.
        summary: its outcome; None as long as it has none.
    """

    folder: Path
    facts: RunFacts
    rows: tuple[Row, ...]
    evaluations: tuple[Row, ...] = ()
    summary: Row | None = None

    def series(self, metric: str) -> tuple[list[int], list[float]]:
        """Steps and values of the rows that have the metric as a finite number."""
        return series_of(self.rows if metric not in _EVALUATED else self.evaluations, metric)


_EVALUATED = (OF_AN_EVALUATION, "eval/format", "eval/mean_length", "eval/clipped_ratio", "eval/reasoning_share")


def series_of(rows: Iterable[Row], metric: str) -> tuple[list[int], list[float]]:
    """Steps and values of the rows that have the metric as a finite number."""
    found = [(row["step"], row[metric]) for row in rows if is_number(row.get(metric))]
    return [step for step, _ in found], [float(value) for _, value in found]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a `metrics.jsonl`, up to one that a killed or running process has half-written; none without it."""
    rows: list[dict[str, Any]] = []
    text = path.read_text(encoding="utf-8", errors="surrogatepass") if path.is_file() else ""
    for line in text.split("\n"):  # a completion may hold any other sign that breaks lines
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def divided(rows: Sequence[Row]) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Rows of steps, and rows of measurements on held-out problems."""
    return (
        tuple(row for row in rows if OF_A_STEP in row),
        tuple(row for row in rows if OF_AN_EVALUATION in row),
    )
