"""What an evaluation found, as a summary for programs and as tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from rlvr_vocab.counted import counted
from rlvr_vocab.evaluation.accuracy import ProblemResult
from rlvr_vocab.evaluation.figures import EvaluationFigures
from rlvr_vocab.statistics import Interval

_IN_TOKENS = ("length", "thinking_length")
_NAMES = {
    "length": "length in tokens",
    "thinking_length": "thinking in tokens",
    "cut_off": "cut off",
    "closed_thinking": "thinking closed",
    "answered": "holds an answer",
    "format": "closed, finished, answered",
    "reasoning_share": "reasoning tokens in thinking",
}
_NOT_SHOWN = ("finished",)  # the rest of what was cut off


@dataclass(frozen=True)
class Outcome:
    """One checkpoint, evaluated; `differences`: to the first checkpoint, for all others."""

    checkpoint: Path
    folder: Path
    results: Sequence[ProblemResult]
    figures: EvaluationFigures
    samples: int
    differences: Mapping[str, Interval]

    @property
    def problems(self) -> int:
        return len({result.problem for result in self.results})

    @property
    def gradable(self) -> int:
        return sum(result.score is not None for result in self.results)

    @property
    def accuracy(self) -> float | None:
        found = self.figures.intervals.get(f"avg@{self.samples}")
        return None if found is None else found.estimate


def summary_of(outcome: Outcome, asked: Mapping[str, Any], dataset: str, first: Path) -> dict[str, Any]:
    """The content of summary.json; shares and differences are fractions, lengths are in tokens."""
    results, intervals = outcome.results, outcome.figures.intervals
    scored = {result.problem for result in results if result.score is not None}
    summary = {
        "checkpoint": str(outcome.checkpoint),
        "dataset": dataset,
        "problems": outcome.problems,
        "samples": outcome.samples,
        "gradable": outcome.gradable,
        "problems_without_score": outcome.problems - len(scored),
        "accuracy": outcome.accuracy,
        "mean_tokens": intervals["length"].estimate,
        "closed_thinking": intervals["closed_thinking"].estimate,
        "finished": intervals["finished"].estimate,
        "figures": {name: asdict(interval) for name, interval in intervals.items()},
        "length_quantiles": outcome.figures.length_quantiles,
        **{key: asked[key] for key in ("temperature", "max_new_tokens", "seed", "backend")},
    }
    if outcome.differences:
        summary["difference_to"] = str(first)
        summary["differences"] = {name: asdict(interval) for name, interval in outcome.differences.items()}
    return summary


def outcome_line(outcome: Outcome) -> str:
    shown = "no gold answer could be read" if outcome.accuracy is None else f"accuracy {outcome.accuracy:.1%}"
    return (
        f"{shown} on {counted(outcome.problems, 'problem')}, {counted(outcome.samples, 'sample')} each, "
        f"{outcome.gradable} of "
        f"{counted(len(outcome.results), 'answer')} gradable; results in {outcome.folder}"
    )


def figure_table(outcome: Outcome) -> Table:
    """Every figure of one checkpoint with its interval."""
    table = Table(box=None, pad_edge=False)
    table.add_column("figure")
    table.add_column("estimate", justify="right")
    table.add_column("95 % interval", justify="right")
    table.add_column("problems", justify="right")
    for name, interval in outcome.figures.intervals.items():
        if name not in _NOT_SHOWN:
            estimate, ends = _shown(name, interval)
            table.add_row(_NAMES.get(name, name), estimate, ends, f"{interval.problems:,}")
    return table


def comparison_table(outcomes: Sequence[Outcome]) -> Table:
    """Checkpoints below each other, with their paired differences to the first."""
    first = outcomes[0]
    average, best, majority = (f"{name}@{first.samples}" for name in ("avg", "pass", "maj"))
    table = Table(box=None, pad_edge=False)
    table.add_column("checkpoint", overflow="fold")
    columns = list(dict.fromkeys([average, *([best, majority] if first.samples > 1 else []), "length", "format"]))
    for name in [*columns, f"{average} less that of the first"]:
        table.add_column(_NAMES.get(name, name), justify="right")
    for outcome in outcomes:
        found = outcome.figures.intervals
        cells = [" ".join(_shown(name, found[name])) if name in found else "-" for name in columns]
        difference = outcome.differences.get(average)
        table.add_row(Text(str(outcome.checkpoint)), *cells, "" if difference is None else _difference(difference))
    return table


def _shown(name: str, interval: Interval) -> tuple[str, str]:
    if name in _IN_TOKENS:
        return f"{interval.estimate:,.1f}", f"[{interval.low:,.1f}, {interval.high:,.1f}]"
    return f"{interval.estimate:.1%}", f"[{interval.low:.1%}, {interval.high:.1%}]"


def _difference(interval: Interval) -> str:
    return f"{interval.estimate:+.1%} [{interval.low:+.1%}, {interval.high:+.1%}]"
