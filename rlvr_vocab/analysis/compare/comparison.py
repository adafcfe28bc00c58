"""Two arms against each other, or several against one: difference, interval, smallest effect, verdict."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from rlvr_vocab.analysis.compare.interval import DifferenceVariance, difference_variance
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.results import ACCURACY, HeldOutMetric
from rlvr_vocab.text import pluralize

# Share of the problems of the run that has fewest: with less in common, the runs are not on one problem set.
_ON_ONE_SET = 0.5
_RUNS_FOR_A_FIRM_EFFECT = 5  # runs of an arm
Verdict = Literal["higher", "lower", "not distinguishable", "one run each"]
Scores = Mapping[Hashable, float]


@dataclass(frozen=True)
class RunResults:
    """The scores of one run on held-out problems; runs of two arms with one seed are a pair.

    problems: for each sample its problem, as anything that is equal for the same problem.
    scores: for each sample 1 for right and 0 for wrong, or, where nothing is, its score.
    """

    seed: Hashable
    problems: Sequence[Hashable]
    scores: Sequence[float]


@dataclass(frozen=True)
class ArmResults:
    """The runs of one arm: one configuration with several seeds."""

    name: str
    runs: Sequence[RunResults]


@dataclass(frozen=True)
class Comparison:
    """The difference between an arm and the baseline.

    baseline_scores, other_scores: the mean score of each run that is compared.
    problems: how many different ones; left_out: how many were not answered by all.
    low, high: the interval of `difference`, within what can be; p: its p-value, `adjusted_p` after Holm.
    smallest_effect: the true difference that is claimed with a chance of `power`.
    """

    baseline: str
    other: str
    paired: bool
    baseline_scores: tuple[float, ...]
    other_scores: tuple[float, ...]
    problems: int
    left_out: int
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
    metric: HeldOutMetric = ACCURACY

    @property
    def verdict(self) -> Verdict:
        """Of the other arm; `one run each` where an arm has one run, so that only two models are compared."""
        if not self.variance.seeds:
            return "one run each"
        if self.adjusted_p >= 1 - self.confidence:
            return "not distinguishable"
        return "higher" if self.difference > 0 else "lower"

    @property
    def interval(self) -> str:
        return self.metric.interval(self.low, self.high)

    @property
    def sentence(self) -> str:
        """The verdict, its figures, and the effect that could have been shown, in a sentence."""
        difference = self.metric.difference(self.difference)
        counts = len(self.baseline_scores), len(self.other_scores)
        interval = f"{100 * self.confidence:g} % interval {self.interval}"
        sample = f"{pluralize(counts[0], 'pair')} of runs" if self.paired else f"{counts[0]} against {counts[1]} runs"
        sample += f" on {pluralize(self.problems, 'problem')}"
        if self.verdict == "one run each":
            models = "The single models" if counts == (1, 1) else "The trained models"
            apart = "differ" if self.low > 0 or self.high < 0 else "are not distinguishable"
            return (
                "One run of an arm cannot tell the arms apart, since the variance over seeds is unknown. "
                f"{models} {apart} on problems like these (difference {difference} for {self.other}, {interval}, "
                f"{sample}). Train each arm with three seeds or more."
            )
        figures = f"difference {difference}, {interval}, {p_text(self.adjusted_p)}"
        if self.comparisons > 1:
            figures += f" after Holm's correction for {self.comparisons} comparisons"
        if self.verdict != "not distinguishable":
            return f"{self.other} is {self.verdict} than {self.baseline} ({figures}; {sample})."
        is_rough = min(counts) < _RUNS_FOR_A_FIRM_EFFECT
        return (
            f"{self.other} and {self.baseline} are not distinguishable ({figures}; the smallest effect that could "
            f"have been shown with {sample} is {self.effect}{', a rough estimate' * is_rough})."
        )

    @property
    def effect(self) -> str:
        """The smallest effect; a difference of two shares is at most 100 points."""
        if self.metric.is_share and self.smallest_effect >= 1:
            return "more than there can be"
        return self.metric.difference(self.smallest_effect, sign=False)


def adjust_verdicts(found: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """The comparisons of several arms with one baseline, their verdicts by p-values after Holm (1979)."""
    adjusted = zip(found, holm([each.p for each in found]), strict=True)
    return tuple(replace(each, adjusted_p=p) for each, p in adjusted)


def compare_arms(
    baseline: ArmResults,
    other: ArmResults,
    confidence: float = 0.95,
    power: float = 0.8,
    paired: bool | None = None,
    metric: HeldOutMetric = ACCURACY,
    comparisons: int = 1,
) -> Comparison:
    """The difference of two arms; UserError without a common problem, or with one score throughout."""
    scores = match_scores(baseline, other, paired)
    both = np.concatenate([scores.baseline.ravel(), scores.other.ravel()])
    largest = 1.0 if metric.is_share else float(np.nanmax(both) - np.nanmin(both))
    if not largest:
        raise UserError(f"{baseline.name} and {other.name}: all answers have the same {metric.name}; nothing differs")
    variance = difference_variance(scores.baseline, scores.other, paired=scores.paired, largest=largest)
    of_baseline, of_other = (np.nanmean(table, axis=1) for table in (scores.baseline, scores.other))
    difference = float(of_other.mean() - of_baseline.mean())
    half, bound = variance.half_width(1 - confidence), 1.0 if metric.is_share else math.inf
    p = variance.p_value(difference)
    return Comparison(
        baseline=baseline.name,
        other=other.name,
        paired=scores.paired,
        baseline_scores=tuple(map(float, of_baseline)),
        other_scores=tuple(map(float, of_other)),
        problems=scores.baseline.shape[1],
        left_out=scores.left_out,
        difference=difference,
        low=max(difference - half, -bound),
        high=min(difference + half, bound),
        p=p,
        adjusted_p=p,
        smallest_effect=variance.smallest_effect((1 - confidence) / comparisons, power),
        confidence=confidence,
        power=power,
        comparisons=comparisons,
        variance=variance,
        metric=metric,
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for their number (Holm 1979, "A simple sequentially rejective multiple test procedure").

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, so_far = [0.0] * len(p_values), 0.0
    for step, number in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        so_far = max(so_far, min(1.0, (len(p_values) - step) * p_values[number]))
        adjusted[number] = so_far
    return adjusted


# --- matching by problem and seed ---


class MatchedScores(NamedTuple):
    """Mean scores of two arms on the same problems, shape (runs of the arm, problems).

    Rows of pairs are in the order of the seeds, with NaN where that pair has not answered that problem. `left_out`
    counts problems that some run answered, but not its pair, or, unpaired, not all runs.
    """

    baseline: np.ndarray
    other: np.ndarray
    left_out: int
    paired: bool


def match_scores(baseline: ArmResults, other: ArmResults, paired: bool | None = None) -> MatchedScores:
    """Match the scores of two arms by problem, and by seed where runs are paired.

    With `paired` None they are paired where both arms have the same seeds, or where the problems are others for each
    seed, so that only runs with one seed have answered the same.
    """
    one, two = _by_seed(baseline), _by_seed(other)
    runs = [*one.values(), *two.values()]
    in_all = _in_all(runs)
    if paired is None:
        paired = one.keys() == two.keys() or len(in_all) < _ON_ONE_SET * min(map(len, runs))
    if paired:
        return _pairs(one, two)
    if not in_all:
        raise UserError("no held-out problem was answered by all runs: nothing can be compared problem by problem")
    tables = [np.array([[run[problem] for problem in in_all] for run in arm.values()]) for arm in (one, two)]
    return MatchedScores(tables[0], tables[1], len(set().union(*runs)) - len(in_all), paired=False)


def _pairs(one: Mapping[Hashable, Scores], two: Mapping[Hashable, Scores]) -> MatchedScores:
    common = {seed: _in_all([one[seed], two[seed]]) for seed in one if seed in two}
    seeds = [seed for seed, problems in common.items() if problems]
    if not seeds:
        thing = "held-out problem" if common else "seed"
        raise UserError(f"the arms have no {thing} in common: nothing can be compared problem by problem")
    columns = {problem: number for number, problem in enumerate({each: 0 for s in seeds for each in common[s]})}
    tables = np.full((2, len(seeds), len(columns)), np.nan)
    for table, runs in zip(tables, (one, two), strict=True):
        for row, seed in enumerate(seeds):
            table[row, [columns[each] for each in common[seed]]] = [runs[seed][each] for each in common[seed]]
    left_out = sum(len(one[seed].keys() ^ two[seed].keys()) for seed in common)
    return MatchedScores(tables[0], tables[1], left_out, paired=True)


def _by_seed(arm: ArmResults) -> dict[Hashable, Scores]:
    """For each seed the mean score of each problem over its samples."""
    found: dict[Hashable, Scores] = {}
    for run in arm.runs:
        if run.seed in found:
            raise UserError(f"{arm.name} has two runs with seed {run.seed}: they are one and the same experiment")
        scores = defaultdict[Hashable, list[float]](list)
        for problem, score in zip(run.problems, run.scores, strict=True):
            scores[problem].append(float(score))
        found[run.seed] = {problem: sum(each) / len(each) for problem, each in scores.items()}
    if not found or not all(found.values()):
        raise UserError(f"{arm.name} has no results to compare")
    return found


def _in_all(runs: Sequence[Scores]) -> list[Hashable]:
    common = set(runs[0]).intersection(*runs[1:])
    return [problem for problem in runs[0] if problem in common]


def p_text(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"
