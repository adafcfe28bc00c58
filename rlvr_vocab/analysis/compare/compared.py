"""Everything that a comparison comes to, ready to be printed, written as JSON and drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rlvr_vocab.analysis.compare.caveats import warnings_of
from rlvr_vocab.analysis.compare.comparison import Comparison, compare_with_baseline, spread
from rlvr_vocab.analysis.compare.problem_view import only_one_solves, shares
from rlvr_vocab.analysis.compare.secondary import Figure, figures_of
from rlvr_vocab.analysis.compare.stories import ArmStory, KeyDifference
from rlvr_vocab.analysis.compare.unchecked import unchecked_of
from rlvr_vocab.analysis.compare.verdict import verdict_sentence


@dataclass(frozen=True)
class Compared:
    """Arms, the baseline first, and what is known of their differences.

    Attributes:
        key: the configuration key under test.
        measured: which results were compared, in words.
        comparisons: of each other arm with the baseline.
        unchecked: what might differ as well, and cannot be told.
    """

    key: str
    measured: str
    arms: tuple[ArmStory, ...]
    comparisons: tuple[Comparison, ...]
    differences: tuple[KeyDifference, ...]
    warnings: tuple[str, ...]
    unchecked: tuple[str, ...]
    figures: tuple[Figure, ...]


def compare_stories(
    key: str,
    measured: str,
    arms: Sequence[ArmStory],
    differences: Sequence[KeyDifference],
    confidence: float,
    power: float,
    paired: bool | None,
) -> Compared:
    """Compare each arm with the first, and look for everything else in which they differ.

    Raises:
        UserError: the arms have nothing in common that could be compared.
    """
    baseline, *others = arms
    found = compare_with_baseline(baseline.results, [arm.results for arm in others], confidence, power, paired)
    warnings = warnings_of(arms, differences, found)
    unchecked, figures = tuple(unchecked_of(arms)), tuple(figures_of(arms))
    return Compared(key, measured, tuple(arms), found, tuple(differences), tuple(warnings), unchecked, figures)


def as_json(compared: Compared) -> dict[str, Any]:
    """All figures, under names of their own."""
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


def _comparison(compared: Compared, number: int) -> dict[str, Any]:
    found = compared.comparisons[number]
    of_baseline, of_other = only_one_solves(shares(compared.arms[0], compared.arms[number + 1]))
    return {
        **asdict(found),
        "smallest_effect": found.smallest_effect if found.luck.seeds else None,
        "sentence": verdict_sentence(found),
        "warnings": list(compared.warnings),
        "baseline_mean": sum(found.baseline_scores) / len(found.baseline_scores),
        "other_mean": sum(found.other_scores) / len(found.other_scores),
        "baseline_spread": spread(found.baseline_scores),
        "other_spread": spread(found.other_scores),
        "only_baseline_solves": of_baseline,
        "only_other_solves": of_other,
    }
