"""The runs of a comparison and everything that it finds: differences, warnings, secondary figures of the arms."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any

import numpy as np

from rlvr_vocab.analysis.compare.comparison import (
    ArmResults,
    Comparison,
    RunResults,
    compare_with_baseline,
    verdict_sentence,
)
from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.metrics import Row
from rlvr_vocab.record.results import GraderRecord, HeldOutMetric, ProblemResult, grader_text, same_grader


@dataclass(frozen=True)
class ComparedRun:
    """One run of an arm.

    Attributes:
        answers: to its held-out problems, graded by `grader`.
        rows, evaluations: of its metrics.jsonl.
        summary, environment, problems: the JSON files of these names; None without the file.
        sampling_settings: of the answers, as `rlvr-vocab evaluate` recorded them; None for the run's own answers.
        selects_best: whether it kept its best checkpoint instead of the last.
        damage: a sentence on each file of it that is lost or changed.
        probe_verdict: None where it was not probed.
    """

    folder: str
    seed: Hashable
    answers: Sequence[ProblemResult]
    rows: Sequence[Row]
    evaluations: Sequence[Row]
    summary: Row | None
    environment: Row | None
    problems: Row | None
    sampling_settings: Row | None
    selects_best: bool
    grader: GraderRecord | None
    damage: Sequence[str]
    probe_verdict: str | None

    @property
    def results(self) -> RunResults:
        """The value of each answer; those without a score are left out."""
        known = [(problem_of(answer), answer.value) for answer in self.answers if answer.value is not None]
        return RunResults(self.seed, [problem for problem, _ in known], [value for _, value in known])

    @property
    def steps(self) -> int | None:
        """Optimisation steps that it took."""
        logged = self.rows[-1]["step"] if self.rows else None
        return (self.summary or {}).get("steps", logged)

    def last(self, metric: str) -> float | None:
        """The last logged value."""
        return next((row[metric] for row in reversed(self.rows) if row.get(metric) is not None), None)


@dataclass(frozen=True)
class ComparedArm:
    """The runs of one arm; `value` is that of the key under test."""

    name: str
    value: str
    runs: tuple[ComparedRun, ...]

    @property
    def results(self) -> ArmResults:
        return ArmResults(self.name, [run.results for run in self.runs])


def problem_of(answer: ProblemResult) -> tuple[str, str | None]:
    """Identity of the problem of an answer: its text and gold answer, not its place in a file."""
    return answer.prompt, cell_text(answer.solution)


def metric_of(runs: Sequence[ComparedRun]) -> HeldOutMetric:
    """The metric of the runs; raises UserError where they were not all graded alike."""
    first, *others = runs
    for run in others:
        if not same_grader(first.grader, run.grader):
            raise UserError(
                f"runs: the answers of {first.folder} were graded by {grader_text(first.grader)}, those of {run.folder}"
                f" by {grader_text(run.grader)}, so that their figures cannot be compared; grade both alike with "
                "rlvr-vocab evaluate checkpoint=… grader=…, and give evaluation=<name>"
            )
    return HeldOutMetric.of(first.grader)


# --- figures beside the verdict: shown, not tested ---


@dataclass(frozen=True)
class SecondaryFigure:
    """One figure of one arm: its mean over the runs that have it, and its standard deviation over them."""

    name: str
    arm: str
    mean: float
    spread: float | None
    runs: int
    percent: bool

    @property
    def text(self) -> str:
        return self._format(self.mean)

    @property
    def spread_text(self) -> str:
        return "one run" if self.spread is None else self._format(self.spread)

    def _format(self, value: float) -> str:
        if self.percent:
            return f"{100 * value:.1f} %"
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{round(value, 9):.3g}"


def seed_deviation(scores: Sequence[float]) -> float | None:
    """Standard deviation over the runs of an arm; None for a single one."""
    return float(np.std(scores, ddof=1)) if len(scores) > 1 else None


def secondary_figures(arms: Sequence[ComparedArm]) -> list[SecondaryFigure]:
    """The figures that some run of every arm has."""
    found = []
    answers = [answer for arm in arms for run in arm.runs for answer in run.answers]
    for name, percent, of_run, tokens in _FIGURES:
        values = [[value for run in arm.runs if (value := of_run(run)) is not None] for arm in arms]
        if all(values) and any(getattr(answer, tokens) for answer in answers):
            found += [
                SecondaryFigure(name, arm.name, mean(each), seed_deviation(each), len(each), percent)
                for arm, each in zip(arms, values, strict=True)
            ]
    return found


def _answered(field: str) -> Callable[[ComparedRun], float]:
    return lambda run: mean(float(getattr(answer, field)) for answer in run.answers)


def _reasoning_share(run: ComparedRun) -> float | None:
    tokens = sum(answer.thinking_tokens for answer in run.answers)
    return sum(answer.reasoning_tokens for answer in run.answers) / tokens if tokens else None


def _summary(field: str) -> Callable[[ComparedRun], float | None]:
    return lambda run: (run.summary or {}).get(field)


def _reward_before(run: ComparedRun) -> float | None:
    """Of a run in which nothing is right or wrong."""
    summary = run.summary or {}
    return summary.get("reward_before") if summary.get("accuracy_before") is None else None


def _format_kept(run: ComparedRun) -> float | None:
    return next((row["eval/format"] for row in reversed(run.evaluations) if "eval/format" in row), None)


# Name, whether it is a share, the figure of a run, and the tokens of which some answer must have any.
_FIGURES: tuple[tuple[str, bool, Callable[[ComparedRun], float | None], str], ...] = (
    ("tokens of thinking per answer", False, _answered("thinking_tokens"), "thinking_tokens"),
    ("thinking closed", True, _answered("closed"), "thinking_tokens"),
    ("reasoning tokens in thinking", True, _reasoning_share, "reasoning_tokens"),
    ("accuracy before training", True, _summary("accuracy_before"), "tokens"),
    ("reward before training", False, _reward_before, "tokens"),
    ("tokens per answer", False, _answered("tokens"), "tokens"),
    ("ended by themselves", True, _answered("finished"), "tokens"),
    ("format kept", True, _format_kept, "tokens"),
    ("steps", False, lambda run: run.steps, "tokens"),
    ("tokens trained on", False, lambda run: run.last("num_tokens"), "tokens"),
    ("reward at the last step", False, lambda run: run.last("reward"), "tokens"),
    ("seconds of the run", False, _summary("seconds"), "tokens"),
    ("seconds of GRPO", False, _summary("grpo_seconds"), "tokens"),
)


@dataclass(frozen=True)
class ComparisonResult:
    """The arms, the baseline first, and how they differ.

    Attributes:
        key: the configuration key under test.
        measured: describes the results that were compared.
        differences: the other keys in which the runs differ, with the value of each run in the order of the arms.
    """

    key: str
    measured: str
    metric: HeldOutMetric
    arms: tuple[ComparedArm, ...]
    comparisons: tuple[Comparison, ...]
    differences: Mapping[str, tuple[str, ...]]
    warnings: tuple[str, ...]
    figures: tuple[SecondaryFigure, ...]

    def as_json(self) -> dict[str, Any]:
        """The content of comparison.json."""
        runs = [
            [
                {"folder": run.folder, "seed": run.seed, "answers": len(run.answers), "probe": run.probe_verdict}
                for run in arm.runs
            ]
            for arm in self.arms
        ]
        return {
            "key": self.key,
            "measured": self.measured,
            "metric": asdict(self.metric),
            "warnings": list(self.warnings),
            "arms": [
                {"name": arm.name, "value": arm.value, "runs": of_arm}
                for arm, of_arm in zip(self.arms, runs, strict=True)
            ],
            "comparisons": [_comparison(found) for found in self.comparisons],
            "configuration_differences": [{"key": key, "values": values} for key, values in self.differences.items()],
            "figures": [asdict(each) for each in self.figures],
        }


def _comparison(found: Comparison) -> dict[str, Any]:
    return {
        **asdict(found),
        "smallest_effect": found.smallest_effect if found.variance.seeds else None,
        "sentence": verdict_sentence(found),
        "baseline_mean": sum(found.baseline_scores) / len(found.baseline_scores),
        "other_mean": sum(found.other_scores) / len(found.other_scores),
        "baseline_spread": seed_deviation(found.baseline_scores),
        "other_spread": seed_deviation(found.other_scores),
    }


def compare_all(
    arms: Sequence[ComparedArm], confidence: float, power: float, paired: bool | None
) -> tuple[Comparison, ...]:
    """Compare each arm with the first.

    Raises:
        UserError: the arms have nothing in common that could be compared, or were graded differently.
    """
    baseline, *others = (arm.results for arm in arms)
    metric = metric_of([run for arm in arms for run in arm.runs])
    return compare_with_baseline(baseline, others, confidence, power, paired, metric)
