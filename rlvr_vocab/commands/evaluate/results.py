"""What an evaluation writes and shows: the settings that its results depend on, its summary, and its tables."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from rlvr_vocab.config.values import as_typed
from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.figures import EvaluationFigures
from rlvr_vocab.evaluation.sampling import SamplingSettings
from rlvr_vocab.files import atomic_write_json, read_json, read_json_if_there
from rlvr_vocab.record.files import EVALUATION_RESULTS, EVALUATION_SETTINGS, SUMMARY
from rlvr_vocab.record.results import HeldOutMetric, ProblemResult, mean_over_problems, same_grader
from rlvr_vocab.rewards.grader import GraderSpec
from rlvr_vocab.statistics import Interval
from rlvr_vocab.text import pluralize
from rlvr_vocab.vocab.layout import LAYOUT_FILE
from rlvr_vocab.vocab.peft.adapter_base import find_base, folder_with, is_adapter
from rlvr_vocab.vocab.peft.weights_fingerprint import weights_fingerprint

# Files of a checkpoint, beside its weights, that change its prompts or how its answers are read.
_READ_BESIDE = (LAYOUT_FILE, "tokenizer.json", "chat_template.jinja", "generation_config.json")


def result_settings(
    checkpoint: Path,
    base: Path | None,
    rows: Sequence[Mapping[str, Any]],
    sampling: SamplingSettings,
    backend: str,
    grader: GraderSpec,
) -> dict[str, Any]:
    """Everything that results depend on, as plain values; not the number of samples, as more may be added."""
    under = find_base(checkpoint, base) if is_adapter(checkpoint) else checkpoint
    return {
        "weights": weights_fingerprint(checkpoint),
        "base_weights": None if under is checkpoint else weights_fingerprint(under),
        "files": {name: _file_hash(checkpoint, base, name) for name in _READ_BESIDE},
        "problems": len(rows),
        "problems_sha256": _sha256([[row["prompt"], cell_text(row.get("solution"))] for row in rows]),
        "grader": grader.record(),
        "format": grader.form_record(),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_new_tokens": sampling.max_new_tokens,
        "seed": sampling.seed,
        "batch_size": sampling.batch_size,
        "backend": backend,
    }


def require_same_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Raises UserError where the folder holds results of another question; nothing is written.

    Settings without results bind nobody: a process that was killed has left them before its first answer.
    """
    results = folder / EVALUATION_RESULTS
    if not results.is_file() or not results.stat().st_size:
        if (folder / SUMMARY).exists():
            raise UserError(
                f"out={folder}: holds a {SUMMARY} without its {EVALUATION_RESULTS}; choose another out, or delete it"
            )
        return
    if not (folder / EVALUATION_SETTINGS).is_file():
        raise UserError(
            f"out={folder}: holds a {EVALUATION_RESULTS} without its {EVALUATION_SETTINGS}, so nobody knows of what; "
            "choose another out, or delete it"
        )
    there = read_json(folder / EVALUATION_SETTINGS)
    others = [key for key in settings if not _same(key, there.get(key), settings[key])]
    if others:
        words = ", ".join(_in_words(key, there.get(key), settings[key]) for key in others)
        raise UserError(f"out={folder}: holds an evaluation with {words}; choose another out, or delete it")


def _same(key: str, there: Any, now: Any) -> bool:
    return same_grader(there, now) if key == "grader" and there is not None else bool(there == now)


def write_settings(folder: Path, settings: Mapping[str, Any], **more: Any) -> None:
    """Write `settings.json`, before the first result; `more` is for readers and not compared."""
    atomic_write_json(folder / EVALUATION_SETTINGS, {**settings, **more}, "out")


def recorded_differences(folder: Path) -> dict[str, Any]:
    """What a summary that was not taken back says of the differences to another checkpoint: the results are the same.

    So a checkpoint that is looked at alone keeps what was found when it was one of several.
    """
    summary = read_json_if_there(folder / SUMMARY) or {}
    return {name: summary[name] for name in ("difference_to", "differences") if name in summary}


def _in_words(key: str, there: Any, now: Any) -> str:
    if isinstance(now, int | float | str) and not key.endswith(("weights", "sha256")):
        return f"{key}={as_typed(there)} (now {as_typed(now)})"
    what = {
        "format": "format reward",
        "problems_sha256": "problems",
        "weights": "weights",
        "base_weights": "weights under the adapter",
    }
    return f"other {what.get(key, key)}"


def _file_hash(checkpoint: Path, base: Path | None, name: str) -> str | None:
    path = folder_with(name, checkpoint, base) / name
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def _sha256(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, ensure_ascii=True).encode()).hexdigest()


_IN_TOKENS = ("length", "thinking_length")
_NAMES = {
    "length": "length in tokens",
    "thinking_length": "thinking in tokens",
    "cut_off": "cut off",
    "closed_thinking": "thinking closed",
    "answered": "holds an answer",
    "format": "in format",
    "score": "reward",
    "reasoning_share": "reasoning tokens in thinking",
}
_NOT_SHOWN = ("finished",)  # the rest of what was cut off


@dataclass(frozen=True)
class EvaluatedCheckpoint:
    """One checkpoint, evaluated; `differences`: to the first checkpoint, for all others; `tasks`: figures of each."""

    checkpoint: Path
    folder: Path
    results: Sequence[ProblemResult]
    figures: EvaluationFigures
    samples: int
    differences: Mapping[str, Interval]
    tasks: Mapping[str, EvaluationFigures] = field(default_factory=dict)

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

    @property
    def reward(self) -> float | None:
        return mean_over_problems(self.results, lambda result: result.score)


def evaluation_summary(
    evaluated: EvaluatedCheckpoint, settings: Mapping[str, Any], dataset: str, first: Path
) -> dict[str, Any]:
    """The content of summary.json; shares and differences are fractions, lengths are in tokens."""
    results, intervals = evaluated.results, evaluated.figures.intervals
    scored = {result.problem for result in results if result.score is not None}
    summary = {
        "checkpoint": str(evaluated.checkpoint),
        "dataset": dataset,
        "problems": evaluated.problems,
        "samples": evaluated.samples,
        "gradable": evaluated.gradable,
        "problems_without_score": evaluated.problems - len(scored),
        "grader": settings["grader"],
        "accuracy": evaluated.accuracy,
        "reward": evaluated.reward,
        "mean_tokens": intervals["length"].estimate,
        **({"closed_thinking": intervals["closed_thinking"].estimate} if "closed_thinking" in intervals else {}),
        "finished": intervals["finished"].estimate,
        "figures": _recorded(evaluated.figures),
        **{key: settings[key] for key in ("temperature", "max_new_tokens", "seed", "backend")},
    }
    if evaluated.tasks:
        summary["tasks"] = {task: _recorded(figures) for task, figures in evaluated.tasks.items()}
    if evaluated.differences:
        summary["difference_to"] = str(first)
        summary["differences"] = {name: asdict(interval) for name, interval in evaluated.differences.items()}
    return summary


def _recorded(figures: EvaluationFigures) -> dict[str, Any]:
    return {name: asdict(interval) for name, interval in figures.intervals.items()}


def outcome_line(evaluated: EvaluatedCheckpoint, measure: HeldOutMetric) -> str:
    found = evaluated.accuracy if measure.is_share else evaluated.reward
    shown = "no answer has a score" if found is None else f"{measure.name} {measure.value(found)}{measure.by}"
    return (
        f"{shown} on {pluralize(evaluated.problems, 'problem')}, {pluralize(evaluated.samples, 'sample')} each, "
        f"{evaluated.gradable} of "
        f"{pluralize(len(evaluated.results), 'answer')} gradable; results in {evaluated.folder}"
    )


def figure_table(evaluated: EvaluatedCheckpoint) -> Table:
    """Every figure of one checkpoint with its interval."""
    table = Table(box=None, pad_edge=False)
    table.add_column("figure")
    table.add_column("estimate", justify="right")
    table.add_column("95 % interval", justify="right")
    table.add_column("problems", justify="right")
    for name, interval in evaluated.figures.intervals.items():
        if name not in _NOT_SHOWN:
            estimate, ends = _with_unit(name, interval)
            table.add_row(_NAMES.get(name, name), estimate, ends, f"{interval.problems:,}")
    return table


def task_table(evaluated: EvaluatedCheckpoint) -> Table:
    """A line for each task: how often its answers are right, what they score where they get credit, their length."""
    average = f"avg@{evaluated.samples}"
    names = [name for name in (average, "score", "length") if name in evaluated.figures.intervals]
    table = Table(box=None, pad_edge=False)
    table.add_column("task")
    table.add_column("problems", justify="right")
    for name in names:
        table.add_column(_NAMES.get(name, name), justify="right")
    for task, figures in evaluated.tasks.items():
        found = figures.intervals
        problems = f"{found['length'].problems:,}"
        table.add_row(
            Text(task), problems, *(" ".join(_with_unit(name, found[name])) if name in found else "-" for name in names)
        )
    return table


def comparison_table(checkpoints: Sequence[EvaluatedCheckpoint]) -> Table:
    """Checkpoints below each other, with their paired differences to the first."""
    first = checkpoints[0]
    average, best, majority = (f"{name}@{first.samples}" for name in ("avg", "pass", "maj"))
    if average not in first.figures.intervals:
        average = "score"
    table = Table(box=None, pad_edge=False)
    table.add_column("checkpoint", overflow="fold")
    columns = list(dict.fromkeys([average, *([best, majority] if first.samples > 1 else []), "length", "format"]))
    for name in [*columns, f"{_NAMES.get(average, average)} less that of the first"]:
        table.add_column(_NAMES.get(name, name), justify="right")
    for evaluated in checkpoints:
        found = evaluated.figures.intervals
        cells = [" ".join(_with_unit(name, found[name])) if name in found else "-" for name in columns]
        difference = evaluated.differences.get(average)
        shown = "" if difference is None else _difference(average, difference)
        table.add_row(Text(str(evaluated.checkpoint)), *cells, shown)
    return table


def _with_unit(name: str, interval: Interval) -> tuple[str, str]:
    if name in _IN_TOKENS:
        return f"{interval.estimate:,.1f}", f"[{interval.low:,.1f}, {interval.high:,.1f}]"
    if _is_reward(name):
        return f"{interval.estimate:.3f}", f"[{interval.low:.3f}, {interval.high:.3f}]"
    return f"{interval.estimate:.1%}", f"[{interval.low:.1%}, {interval.high:.1%}]"


def _is_reward(name: str) -> bool:
    return name == "score" or name.startswith("rewards/")


def _difference(name: str, interval: Interval) -> str:
    if _is_reward(name):
        return f"{interval.estimate:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"
    return f"{interval.estimate:+.1%} [{interval.low:+.1%}, {interval.high:+.1%}]"
