"""Two arms against each other, or several against one: difference, interval, smallest effect, verdict in words."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from rlvr_vocab.analysis.compare.interval import (
    DifferenceVariance,
    difference_variance,
    half_width,
    p_value,
    smallest_effect,
)
from rlvr_vocab.analysis.compare.runs import ArmResults, match_scores
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.results import ACCURACY, HeldOutMetric
from rlvr_vocab.text import pluralize

_RUNS_FOR_A_FIRM_EFFECT = 5  # runs of an arm
ROUGH_EFFECT = (
    "With so few runs the smallest effect is itself a rough estimate: the same experiment with other seeds may report "
    "one that differs by a factor of two."
)
Verdict = Literal["higher", "lower", "not distinguishable", "one run each"]


@dataclass(frozen=True)
class Comparison:
    """The difference between an arm and the baseline.

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
        measure: what the scores are of.
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
    variance: DifferenceVariance
    measure: HeldOutMetric = ACCURACY

    @property
    def counts(self) -> tuple[int, int]:
        """Number of runs of each arm."""
        return len(self.baseline_scores), len(self.other_scores)


def compare_arms(
    baseline: ArmResults,
    other: ArmResults,
    confidence: float = 0.95,
    power: float = 0.8,
    paired: bool | None = None,
    measure: HeldOutMetric = ACCURACY,
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
    return compare_with_baseline(baseline, [other], confidence, power, paired, measure)[0]


def compare_with_baseline(
    baseline: ArmResults,
    others: Sequence[ArmResults],
    confidence: float = 0.95,
    power: float = 0.8,
    paired: bool | None = None,
    measure: HeldOutMetric = ACCURACY,
) -> tuple[Comparison, ...]:
    """Each of several arms against the baseline.

    With several, the verdicts rest on p-values by Holm (1979), so that one false claim among all of them is as rare as
    in a single comparison. Intervals stand each for itself; the smallest effect is that of the strictest step.
    """
    figures = partial(_figures, confidence=confidence, power=power, paired=paired, measure=measure)
    found = [figures(baseline, other, comparisons=len(others)) for other in others]
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
    baseline: ArmResults,
    other: ArmResults,
    *,
    confidence: float,
    power: float,
    paired: bool | None,
    measure: HeldOutMetric,
    comparisons: int,
) -> Comparison:
    scores = match_scores(baseline, other, paired)
    if not (measure.is_share or scores.range):
        raise UserError(f"{baseline.name} and {other.name}: all answers have the same {measure.name}; nothing differs")
    largest = 1.0 if measure.is_share else math.inf
    variance, error = difference_variance(scores, 1.0 if measure.is_share else scores.range), 1 - confidence
    of_baseline, of_other = (np.nanmean(table, axis=1) for table in (scores.baseline, scores.other))
    difference = float(of_other.mean() - of_baseline.mean())
    half = half_width(variance, error)
    p = p_value(variance, difference)
    return Comparison(
        baseline=baseline.name,
        other=other.name,
        verdict="not distinguishable",
        paired=scores.seeds is not None,
        seeds=scores.seeds or (),
        baseline_scores=tuple(map(float, of_baseline)),
        other_scores=tuple(map(float, of_other)),
        problems=scores.baseline.shape[1],
        left_out=scores.left_out,
        left_out_runs=len(baseline.runs) + len(other.runs) - len(of_baseline) - len(of_other),
        difference=difference,
        low=max(difference - half, -largest),
        high=min(difference + half, largest),
        p=p,
        adjusted_p=p,
        smallest_effect=smallest_effect(variance, error / comparisons, power),
        confidence=confidence,
        power=power,
        comparisons=comparisons,
        variance=variance,
        measure=measure,
    )


def _verdict(figures: Comparison, p: float) -> Verdict:
    if not figures.variance.seeds:
        return "one run each"
    if p >= 1 - figures.confidence:
        return "not distinguishable"
    return "higher" if figures.difference > 0 else "lower"


def seed_deviation(scores: Sequence[float]) -> float | None:
    """Standard deviation over the runs of an arm; None for a single one."""
    return float(np.std(scores, ddof=1)) if len(scores) > 1 else None


def verdict_sentence(found: Comparison) -> str:
    """One sentence: the verdict, the figures that it rests on, and what could have been seen."""
    if found.verdict == "one run each":
        return _of_models(found)
    figures = (
        f"difference {found.measure.difference(found.difference)}, {interval_text(found)}, {p_text(found.adjusted_p)}"
    )
    figures += f" after Holm's correction for {found.comparisons} comparisons" * (found.comparisons > 1)
    if found.verdict == "not distinguishable":
        return (
            f"{found.other} and {found.baseline} are not distinguishable ({figures}; the smallest effect that could "
            f"have been shown with {sample_text(found)} is {effect_text(found)}"
            f"{', itself a rough estimate' if is_rough(found) else ''})."
        )
    return f"{found.other} is {found.verdict} than {found.baseline} ({figures}; {sample_text(found)})."


def _of_models(found: Comparison) -> str:
    zero_outside = found.low > 0 or found.high < 0
    models = "The single models" if found.counts == (1, 1) else "The models that were trained"
    apart = "differ on problems like these" if zero_outside else "are not distinguishable on problems like these"
    difference = found.measure.difference(found.difference)
    return (
        f"One run of an arm cannot tell the arms apart: the luck of a seed is not seen. {models} {apart} "
        f"(difference {difference} for {found.other}, {interval_text(found)}, {sample_text(found)}). "
        "Train each arm with three seeds or more."
    )


def sample_text(found: Comparison) -> str:
    """The number of runs and problems of a comparison."""
    counts = found.counts
    on = f"on {pluralize(found.problems, 'problem')}"
    if found.paired:
        return f"{pluralize(counts[0], 'pair')} of runs {on}"
    return f"{counts[0]} against {pluralize(counts[1], 'run')} {on}"


def effect_text(found: Comparison) -> str:
    """The smallest effect; a difference of two shares is at most 100 points."""
    if found.measure.is_share and found.smallest_effect >= 1:
        return "more than there can be"
    return found.measure.difference(found.smallest_effect, sign=False)


def is_rough(found: Comparison) -> bool:
    """Whether the smallest effect is an estimate from very few runs."""
    possible = not found.measure.is_share or found.smallest_effect < 1
    return min(found.counts) < _RUNS_FOR_A_FIRM_EFFECT and possible


def p_figure(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.2g}"


def p_text(p: float) -> str:
    return f"p {p_figure(p)}" if p < 0.001 else f"p = {p_figure(p)}"


def interval_text(found: Comparison) -> str:
    return f"{100 * found.confidence:g} % interval {interval_points(found)}"


def interval_points(found: Comparison) -> str:
    """The ends of the interval, of shares in percentage points."""
    return " to ".join(found.measure.difference(end).removesuffix(" points") for end in (found.low, found.high))
