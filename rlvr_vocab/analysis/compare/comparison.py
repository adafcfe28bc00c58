"""Two arms against each other, or several against one: difference, interval, smallest effect, verdict."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rlvr_vocab.analysis.compare.arms import ArmResults, Pairs, matched
from rlvr_vocab.analysis.compare.interval import half_width, p_value, smallest_effect
from rlvr_vocab.analysis.compare.luck import Luck, luck_of

Verdict = Literal["higher", "lower", "not distinguishable", "one run each"]


@dataclass(frozen=True)
class Comparison:
    """What is known of the difference between an arm and the baseline.

    Attributes:
        verdict: of the other arm against the baseline; `one run each` where an arm has one run only, so that the
            figures are of two models and say nothing about the arms.
        paired: whether runs of one seed were taken as pairs.
        seeds: those of the pairs; empty where the runs are not paired.
        baseline_scores, other_scores: the mean score of each run, on the problems that are compared.
        problems: how many different ones; `left_out`: how many were not answered by all whom it takes.
        left_out_runs: those without a partner, where runs are paired.
        difference: of the arms' means, other minus baseline; low, high: its interval, within what can be.
        p: the chance of a difference as far from zero where there is none; `adjusted_p` for all comparisons (Holm).
        smallest_effect: the true difference that would have been claimed with a chance of `power`.
        comparisons: how many arms are compared with the baseline.
    """

    baseline: str
    other: str
    verdict: Verdict
    paired: bool
    seeds: tuple[Hashable, ...]
    baseline_scores: tuple[float, ...]
    other_scores: tuple[float, ...]
    problems: int
    left_out: int
    left_out_runs: int
    difference: float
    low: float
    high: float
    p: float
    adjusted_p: float
    smallest_effect: float
    confidence: float
    power: float
    comparisons: int
    luck: Luck

    @property
    def counts(self) -> tuple[int, int]:
        """How many runs of each arm are compared."""
        return len(self.baseline_scores), len(self.other_scores)


def compare_arms(
    baseline: ArmResults,
    other: ArmResults,
    confidence: float = 0.95,
    power: float = 0.8,
    paired: bool | None = None,
) -> Comparison:
    """The difference between two arms on the same problems.

    Args:
        confidence: of the interval; with no difference, one is claimed in at most 1 - confidence of comparisons.
        power: of the smallest effect.
        paired: see `matched`.

    Raises:
        UserError: the arms cannot be compared.

    Example:
        >>> easy, hard = range(40), range(40, 80)
        >>> def run(seed, solved):
        ...     return RunResults(seed, [*easy, *hard], [float(each in solved) for each in (*easy, *hard)])
        >>> plain = ArmResults("plain", [run(seed, range(40 + seed)) for seed in range(3)])
        >>> better = ArmResults("better", [run(seed, range(60 + seed)) for seed in range(3)])
        >>> found = compare_arms(plain, better)
        >>> found.verdict, round(found.difference, 3)
        ('higher', 0.25)
    """
    return compare_with_baseline(baseline, [other], confidence, power, paired)[0]


def compare_with_baseline(
    baseline: ArmResults,
    others: Sequence[ArmResults],
    confidence: float = 0.95,
    power: float = 0.8,
    paired: bool | None = None,
) -> tuple[Comparison, ...]:
    """Each of several arms against the baseline.

    With several, the verdicts rest on p-values by Holm (1979), so that one false claim among all of them is as rare as
    in a single comparison. Intervals stand each for itself; the smallest effect is that of the strictest step.
    """
    found = [_figures(baseline, other, confidence, power, paired, len(others)) for other in others]
    adjusted = holm([each.p for each in found])
    return tuple(
        replace(each, adjusted_p=p, verdict=_verdict(each, p)) for each, p in zip(found, adjusted, strict=True)
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for their number (Holm 1979, "A simple sequentially rejective multiple test procedure").

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    adjusted, so_far = [0.0] * len(p_values), 0.0
    for step, number in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        so_far = max(so_far, min(1.0, (len(p_values) - step) * p_values[number]))
        adjusted[number] = so_far
    return adjusted


def _figures(
    baseline: ArmResults, other: ArmResults, confidence: float, power: float, paired: bool | None, comparisons: int
) -> Comparison:
    scores = matched(baseline, other, paired)
    luck, error = luck_of(scores), 1 - confidence
    of_baseline, of_other = (np.nanmean(table, axis=1) for table in (scores.baseline, scores.other))
    difference = float(of_other.mean() - of_baseline.mean())
    half = half_width(luck, error)
    p = p_value(luck, difference)
    return Comparison(
        baseline=baseline.name,
        other=other.name,
        verdict="not distinguishable",
        paired=isinstance(scores, Pairs),
        seeds=scores.seeds if isinstance(scores, Pairs) else (),
        baseline_scores=tuple(map(float, of_baseline)),
        other_scores=tuple(map(float, of_other)),
        problems=scores.baseline.shape[1],
        left_out=scores.left_out,
        left_out_runs=len(baseline.runs) + len(other.runs) - len(of_baseline) - len(of_other),
        difference=difference,
        low=max(difference - half, -1.0),
        high=min(difference + half, 1.0),
        p=p,
        adjusted_p=p,
        smallest_effect=smallest_effect(luck, error / comparisons, power),
        confidence=confidence,
        power=power,
        comparisons=comparisons,
        luck=luck,
    )


def _verdict(figures: Comparison, p: float) -> Verdict:
    if not figures.luck.seeds:
        return "one run each"
    if p >= 1 - figures.confidence:
        return "not distinguishable"
    return "higher" if figures.difference > 0 else "lower"


def spread(scores: Sequence[float]) -> float | None:
    """Standard deviation over the runs of an arm; None for a single one."""
    return float(np.std(scores, ddof=1)) if len(scores) > 1 else None


def standard_error(luck: Luck) -> float:
    return math.sqrt(luck.variance)
