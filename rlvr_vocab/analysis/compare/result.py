"""All that a comparison finds: the differences, the warnings, and secondary figures of the arms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any

from rlvr_vocab.analysis.compare.comparison import Comparison, compare_with_baseline, seed_deviation, verdict_sentence
from rlvr_vocab.analysis.compare.runs import ComparedArm, ComparedRun, KeyDifference, measure_of
from rlvr_vocab.analysis.compare.warnings import comparison_warnings
from rlvr_vocab.record.results import HeldOutMetric


@dataclass(frozen=True)
class SecondaryFigure:
    """One figure of one arm: its mean over the runs that have it, and its standard deviation over them."""

    name: str
    arm: str
    mean: float
    spread: float | None
    runs: int
    percent: bool


def secondary_figures(arms: Sequence[ComparedArm]) -> list[SecondaryFigure]:
    """The figures beside the measure that some run of every arm has: reported, not tested."""
    found = []
    answers = [answer for arm in arms for run in arm.runs for answer in run.answers]
    of_thinking = _OF_THINKING if any(answer.thinking_tokens for answer in answers) else ()
    of_copies = _OF_COPIES if any(answer.reasoning_tokens for answer in answers) else ()
    for name, percent, of_run in (*of_thinking, *of_copies, *_FIGURES):
        values = [[value for run in arm.runs if (value := of_run(run)) is not None] for arm in arms]
        if all(values):
            found += [
                SecondaryFigure(name, arm.name, mean(each), seed_deviation(each), len(each), percent)
                for arm, each in zip(arms, values, strict=True)
            ]
    return found


def _answered(field: str) -> Callable[[ComparedRun], float]:
    """The mean of a field over the answers."""
    return lambda run: mean(float(getattr(answer, field)) for answer in run.answers)


def _summed_up(field: str) -> Callable[[ComparedRun], float | None]:
    return lambda run: None if run.summary is None else run.summary.get(field)


def _reward_before(run: ComparedRun) -> float | None:
    """Of a run in which nothing is right or wrong."""
    summary = run.summary or {}
    return None if summary.get("accuracy_before") is not None else summary.get("reward_before")


def _logged(metric: str) -> Callable[[ComparedRun], float | None]:
    return lambda run: run.last(metric)


def _held_out_format(run: ComparedRun) -> float | None:
    return next((row["eval/format"] for row in reversed(run.evaluations) if "eval/format" in row), None)


def _reasoning_share(run: ComparedRun) -> float | None:
    """Share of reasoning tokens among the tokens sampled while thinking."""
    tokens = sum(answer.thinking_tokens for answer in run.answers)
    return sum(answer.reasoning_tokens for answer in run.answers) / tokens if tokens else None


_Figures = tuple[tuple[str, bool, Callable[[ComparedRun], float | None]], ...]
_OF_THINKING: _Figures = (
    ("tokens of thinking per answer", False, _answered("thinking_tokens")),
    ("thinking closed", True, _answered("closed")),
)
_OF_COPIES: _Figures = (("reasoning tokens in thinking", True, _reasoning_share),)
_FIGURES: _Figures = (
    ("accuracy before training", True, _summed_up("accuracy_before")),
    ("reward before training", False, _reward_before),
    ("tokens per answer", False, _answered("tokens")),
    ("ended by themselves", True, _answered("finished")),
    ("format kept", True, _held_out_format),
    ("steps", False, lambda run: run.steps),
    ("tokens trained on", False, _logged("num_tokens")),
    ("reward at the last step", False, _logged("reward")),
    ("seconds of the run", False, _summed_up("seconds")),
    ("seconds of GRPO", False, _summed_up("grpo_seconds")),
)


@dataclass(frozen=True)
class ComparisonResult:
    """The arms, the baseline first, and how they differ.

    Attributes:
        key: the configuration key under test.
        measured: describes the results that were compared.
        measure: what they are compared by.
        comparisons: of each other arm with the baseline.
    """

    key: str
    measured: str
    measure: HeldOutMetric
    arms: tuple[ComparedArm, ...]
    comparisons: tuple[Comparison, ...]
    differences: tuple[KeyDifference, ...]
    warnings: tuple[str, ...]
    figures: tuple[SecondaryFigure, ...]


def compare_runs(
    key: str,
    measured: str,
    arms: Sequence[ComparedArm],
    differences: Sequence[KeyDifference],
    confidence: float,
    power: float,
    paired: bool | None,
) -> ComparisonResult:
    """Compare each arm with the first, and look for everything else in which they differ.

    Raises:
        UserError: the arms have nothing in common that could be compared, or were graded differently.
    """
    baseline, *others = arms
    measure = measure_of([run for arm in arms for run in arm.runs])
    results = [arm.results for arm in others]
    found = compare_with_baseline(baseline.results, results, confidence, power, paired, measure)
    warnings = comparison_warnings(arms, differences, found)
    figures = tuple(secondary_figures(arms))
    return ComparisonResult(key, measured, measure, tuple(arms), found, tuple(differences), tuple(warnings), figures)


def as_json(compared: ComparisonResult) -> dict[str, Any]:
    """The content of comparison.json."""
    return {
        "key": compared.key,
        "measured": compared.measured,
        "measure": asdict(compared.measure),
        "warnings": list(compared.warnings),
        "arms": [
            {
                "name": arm.name,
                "value": arm.value,
                "runs": [
                    {
                        "folder": run.folder,
                        "seed": run.seed,
                        "answers": len(run.answers),
                        "copies_mean": run.copies_mean,
                    }
                    for run in arm.runs
                ],
            }
            for arm in compared.arms
        ],
        "comparisons": [{**_comparison(found), "warnings": list(compared.warnings)} for found in compared.comparisons],
        "configuration_differences": [asdict(each) for each in compared.differences],
        "figures": [asdict(each) for each in compared.figures],
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
