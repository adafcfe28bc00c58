"""How far luck alone moves the difference of two arms: the luck of the problems and the luck of the seeds.

A difference D of mean scores would be another with other held-out problems and with other seeds of training. The two
kinds of luck are crossed: every seed answers many problems, a problem may be answered by many seeds. Their variances
add up but for what both contain, which must not be counted twice (Cameron, Gelbach, Miller 2011, "Robust inference with
multiway clustering"; Owen 2007, "The pigeonhole bootstrap"):

    V = V_problems + V_seeds - V_both

With few seeds the terms of that paper are biased, so they are made unbiased here (docs/comparing.md derives them).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlvr_vocab.analysis.compare.arms import Apart, Pairs


@dataclass(frozen=True)
class SeedLuck:
    """A part of the variance that the draw of the seeds makes.

    Attributes:
        variance: as it is seen: the luck of the answers of each seed is in it.
        of_problems: what of the variance over problems is in it too.
        df: its degrees of freedom.
    """

    variance: float
    of_problems: float
    df: float


@dataclass(frozen=True)
class Luck:
    """The parts of the variance of a difference of means.

    Attributes:
        problems: variance over the draw of the problems, the seeds fixed.
        problems_df: its degrees of freedom.
        seeds: one part, or one for each arm; none where an arm has one run, and nothing can be said of seeds.
    """

    problems: float
    problems_df: float
    seeds: tuple[SeedLuck, ...] = ()

    @property
    def of_seeds(self) -> float:
        return sum(each.variance for each in self.seeds)

    @property
    def only_problems(self) -> float:
        """What of `problems` is not in `seeds`."""
        return max(self.problems - sum(each.of_problems for each in self.seeds), 0.0)

    @property
    def variance(self) -> float:
        """Of the difference; never less than what the problems alone make."""
        return max(self.only_problems + self.of_seeds, self.problems)


def luck_of(scores: Pairs | Apart) -> Luck:
    """The luck in the difference of the means of two arms."""
    if isinstance(scores, Pairs):
        return _of_pairs(scores.other - scores.baseline)
    return _of_runs_apart(scores.baseline, scores.other)


def _of_pairs(differences: np.ndarray) -> Luck:
    """Args: differences of shape (seeds, problems), NaN where a pair has not answered."""
    count = differences.shape[1]
    problems = max(_of_problems(differences), _one_problem(count))
    return Luck(problems, max(count - 1, 1), (_of_seeds(differences),) if len(differences) > 1 else ())


def _of_runs_apart(baseline: np.ndarray, other: np.ndarray) -> Luck:
    """Each arm has its own luck of seeds.

    Arms with as many runs have degrees of freedom together, as in Welch's test (1947). With unequal numbers that test
    claims too often (two runs against ten: twice as often as it says), and each arm keeps its own.
    """
    count = baseline.shape[1]
    problems = max(_of_problems((other.mean(0) - baseline.mean(0))[None]), _one_problem(count))
    if min(len(baseline), len(other)) < 2:
        return Luck(problems, max(count - 1, 1))
    arms = _of_seeds(baseline), _of_seeds(other)
    return Luck(problems, max(count - 1, 1), arms if len(baseline) != len(other) else (_together(arms),))


def _together(parts: Sequence[SeedLuck]) -> SeedLuck:
    variance, of_problems = sum(each.variance for each in parts), sum(each.of_problems for each in parts)
    return SeedLuck(variance, of_problems, freedom_of(parts))


def freedom_of(parts: Sequence[SeedLuck]) -> float:
    """Degrees of freedom of a sum of variances (Satterthwaite 1946)."""
    uncertainty = sum(each.variance**2 / each.df for each in parts)
    return sum(each.variance for each in parts) ** 2 / uncertainty if uncertainty else sum(each.df for each in parts)


def _of_problems(values: np.ndarray) -> float:
    """Variance of the mean over the rows of their means, as a draw of problems makes it: problems are clusters."""
    answered = ~np.isnan(values)
    counts = answered.sum(1)
    rest = np.where(answered, values - np.nanmean(values, axis=1, keepdims=True), 0.0)
    influence = (rest / (len(values) * counts[:, None])).sum(0)
    size = counts.mean()
    return float((influence**2).sum() * size / max(size - 1, 1))


def _of_seeds(values: np.ndarray) -> SeedLuck:
    """Of the mean over two rows or more of their means, as a draw of rows makes it."""
    rows = len(values)
    alone = sum(_of_problems(row[None]) for row in values)
    both = (alone - rows * _of_problems(values)) / (rows * (rows - 1))
    return SeedLuck(float(np.nanmean(values, axis=1).var(ddof=1) / rows), max(both, 0.0), rows - 1)


def _one_problem(count: int) -> float:
    """One problem answered otherwise in all runs: where every answer is alike, luck is not zero but unseen."""
    return 1.0 / count**2
