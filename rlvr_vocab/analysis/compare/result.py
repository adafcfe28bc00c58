"""All that a comparison finds: the differences, warnings, secondary figures of the arms, and single problems."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any

from rlvr_vocab.analysis.compare.comparison import Comparison, compare_with_baseline, seed_deviation, verdict_sentence
from rlvr_vocab.analysis.compare.runs import ComparedArm, ComparedRun, KeyDifference, problem_means, problem_of
from rlvr_vocab.analysis.compare.warnings import comparison_warnings, unchecked_differences


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
    """The figures beside the accuracy that some run of every arm has: reported, not tested."""
    found = []
    for name, percent, of_run in _FIGURES:
        values = [[value for run in arm.runs if (value := of_run(run)) is not None] for arm in arms]
        if all(values):
            found += [
                SecondaryFigure(name, arm.name, mean(each), seed_deviation(each), len(each), percent)
                for arm, each in zip(arms, values, strict=True)
            ]
    return found


def _answered(field: str) -> Callable[[ComparedRun], float | None]:
    """The mean of a field over the answers that have it."""

    def of_run(run: ComparedRun) -> float | None:
        values = [answer[field] for answer in run.answers if answer.get(field) is not None]
        return mean(map(float, values)) if values else None

    return of_run


def _summed_up(field: str) -> Callable[[ComparedRun], float | None]:
    return lambda run: None if run.summary is None else run.summary.get(field)


def _logged(metric: str) -> Callable[[ComparedRun], float | None]:
    return lambda run: run.last(metric)


def _held_out_format(run: ComparedRun) -> float | None:
    return next((row["eval/format"] for row in reversed(run.evaluations) if "eval/format" in row), None)


def _reasoning_share(run: ComparedRun) -> float | None:
    """Share of reasoning tokens among the tokens sampled while thinking."""
    thought = [answer for answer in run.answers if answer.get("thinking_tokens") and "reasoning_tokens" in answer]
    tokens = sum(answer["thinking_tokens"] for answer in thought)
    return sum(answer["reasoning_tokens"] for answer in thought) / tokens if tokens else None


_FIGURES: tuple[tuple[str, bool, Callable[[ComparedRun], float | None]], ...] = (
    ("accuracy before training", True, _summed_up("accuracy_before")),
    ("tokens per answer", False, _answered("tokens")),
    ("tokens of thinking per answer", False, _answered("thinking_tokens")),
    ("thinking closed", True, _answered("closed")),
    ("ended by themselves", True, _answered("finished")),
    ("format kept", True, _held_out_format),
    ("reasoning tokens in thinking", True, _reasoning_share),
    ("steps", False, lambda run: run.steps),
    ("tokens trained on", False, _logged("num_tokens")),
    ("reward at the last step", False, _logged("reward")),
    ("seconds of the run", False, _summed_up("seconds")),
    ("seconds of GRPO", False, _summed_up("grpo_seconds")),
)


@dataclass(frozen=True)
class ProblemAccuracy:
    """How often two arms solved a problem that both answered.

    Attributes:
        baseline, other: share of right answers, over the runs that answered it.
        runs: how many of either arm answered it.
    """

    prompt: str
    solution: str
    baseline: float
    other: float
    runs: tuple[int, int]

    @property
    def difference(self) -> float:
        return self.other - self.baseline


def problem_accuracies(baseline: ComparedArm, other: ComparedArm) -> list[ProblemAccuracy]:
    """Every problem that both arms answered, those at which the other arm is ahead first."""
    one, two = _by_problem(baseline), _by_problem(other)
    met = dict.fromkeys(problem_of(answer) for run in baseline.runs for answer in run.answers)
    found = [
        ProblemAccuracy(*problem, _mean(one[problem]), _mean(two[problem]), (len(one[problem]), len(two[problem])))
        for problem in met
        if problem in one and problem in two
    ]
    return sorted(found, key=lambda each: (-each.difference, each.prompt))


def solved_by_one_arm(found: list[ProblemAccuracy]) -> tuple[int, int]:
    """How many problems only the baseline ever solves, and how many only the other arm."""
    return (
        sum(each.baseline > 0 and each.other == 0 for each in found),
        sum(each.other > 0 and each.baseline == 0 for each in found),
    )


def _by_problem(arm: ComparedArm) -> dict[Hashable, list[float]]:
    """The share of right answers of each run."""
    found: dict[Hashable, list[float]] = defaultdict(list)
    for run in arm.runs:
        for problem, score in problem_means(run.results).items():
            found[problem].append(score)
    return found


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


@dataclass(frozen=True)
class ComparisonResult:
    """The arms, the baseline first, and how they differ.

    Attributes:
        key: the configuration key under test.
        measured: describes the results that were compared.
        comparisons: of each other arm with the baseline.
        unchecked: a sentence on each possible difference that the runs have not recorded.
    """

    key: str
    measured: str
    arms: tuple[ComparedArm, ...]
    comparisons: tuple[Comparison, ...]
    differences: tuple[KeyDifference, ...]
    warnings: tuple[str, ...]
    unchecked: tuple[str, ...]
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
        UserError: the arms have nothing in common that could be compared.
    """
    baseline, *others = arms
    found = compare_with_baseline(baseline.results, [arm.results for arm in others], confidence, power, paired)
    warnings = comparison_warnings(arms, differences, found)
    unchecked, figures = tuple(unchecked_differences(arms)), tuple(secondary_figures(arms))
    return ComparisonResult(key, measured, tuple(arms), found, tuple(differences), tuple(warnings), unchecked, figures)


def as_json(compared: ComparisonResult) -> dict[str, Any]:
    """The content of comparison.json."""
    return {
        "key": compared.key,
        "measured": compared.measured,
        "warnings": list(compared.warnings),
        "unchecked": list(compared.unchecked),
        "arms": [
            {
                "name": arm.name,
                "value": arm.value,
                "runs": [{"folder": run.folder, "seed": run.seed, "answers": len(run.answers)} for run in arm.runs],
            }
            for arm in compared.arms
        ],
        "comparisons": [_comparison(compared, number) for number in range(len(compared.comparisons))],
        "configuration_differences": [asdict(each) for each in compared.differences],
        "figures": [asdict(each) for each in compared.figures],
    }


def _comparison(compared: ComparisonResult, number: int) -> dict[str, Any]:
    found = compared.comparisons[number]
    figures = asdict(found)
    figures["luck"] = figures.pop("variance")
    of_baseline, of_other = solved_by_one_arm(problem_accuracies(compared.arms[0], compared.arms[number + 1]))
    return {
        **figures,
        "smallest_effect": found.smallest_effect if found.variance.seeds else None,
        "sentence": verdict_sentence(found),
        "warnings": list(compared.warnings),
        "baseline_mean": sum(found.baseline_scores) / len(found.baseline_scores),
        "other_mean": sum(found.other_scores) / len(found.other_scores),
        "baseline_spread": seed_deviation(found.baseline_scores),
        "other_spread": seed_deviation(found.other_scores),
        "only_baseline_solves": of_baseline,
        "only_other_solves": of_other,
    }
