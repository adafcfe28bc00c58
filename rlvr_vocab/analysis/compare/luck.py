"""How far luck alone moves the difference of two arms: the luck of the problems and the luck of the seeds.

A difference D of mean scores would be another with other held-out problems and with other seeds of training. The two
kinds of luck are crossed: every seed answers many problems, a problem may be answered by many seeds. Their variances
add up but for what both contain, which must not be counted twice (Cameron, Gelbach, Miller 2011, "Robust inference with
multiway clustering"; Owen 2007, "The pigeonhole bootstrap"):

    V = V_problems + V_seeds - V_both

With few seeds the terms of that paper are biased, so they are made unbiased here (docs/comparing.md derives them).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlvr_vocab.analysis.compare.arms import Apart, Pairs


@dataclass(frozen=True)
class Luck:
    """The parts of the variance of a difference of means.

    Attributes:
        problems: variance over the draw of the problems, the seeds fixed.
        seeds: variance over the draw of the seeds, as it is seen: the luck of the answers of each is in it.
        both: what of `problems` is in `seeds` too.
        problems_df: degrees of freedom of `problems`.
        seeds_df: degrees of freedom of `seeds`; 0 where an arm has one run, and nothing can be said of seeds.
    """

    problems: float
    seeds: float
    both: float
    problems_df: float
    seeds_df: float

    @property
    def only_problems(self) -> float:
        """What of `problems` is not in `seeds`."""
        return max(self.problems - self.both, 0.0)

    @property
    def variance(self) -> float:
        """Of the difference; never less than what the problems alone make."""
        return max(self.only_problems + self.seeds, self.problems)


def luck_of(scores: Pairs | Apart) -> Luck:
    """The luck in the difference of the means of two arms."""
    if isinstance(scores, Pairs):
        return _of_pairs(scores.other - scores.baseline)
    return _of_runs_apart(scores.baseline, scores.other)


def _of_pairs(differences: np.ndarray) -> Luck:
    """Args: differences of shape (seeds, problems), NaN where a pair has not answered."""
    count = differences.shape[1]
    problems = max(_of_problems(differences), _one_problem(count))
    seeds, both = _of_seeds(differences)
    return Luck(problems, seeds, both, max(count - 1, 1), len(differences) - 1)


def _of_runs_apart(baseline: np.ndarray, other: np.ndarray) -> Luck:
    """Each arm has its own luck of seeds; degrees of freedom as Welch's test (1947) has them."""
    count = baseline.shape[1]
    problems = max(_of_problems((other.mean(0) - baseline.mean(0))[None]), _one_problem(count))
    if min(len(baseline), len(other)) < 2:
        return Luck(problems, 0.0, 0.0, max(count - 1, 1), 0)
    (one, both_one), (two, both_two) = _of_seeds(baseline), _of_seeds(other)
    freedoms = len(baseline) - 1, len(other) - 1
    uncertainty = one**2 / freedoms[0] + two**2 / freedoms[1]
    freedom = (one + two) ** 2 / uncertainty if uncertainty else sum(freedoms)
    return Luck(problems, one + two, both_one + both_two, max(count - 1, 1), freedom)


def _of_problems(values: np.ndarray) -> float:
    """Variance of the mean over the rows of their means, as a draw of problems makes it: problems are clusters."""
    answered = ~np.isnan(values)
    counts = answered.sum(1)
    rest = np.where(answered, values - np.nanmean(values, axis=1, keepdims=True), 0.0)
    influence = (rest / (len(values) * counts[:, None])).sum(0)
    size = counts.mean()
    return float((influence**2).sum() * size / max(size - 1, 1))


def _of_seeds(values: np.ndarray) -> tuple[float, float]:
    """Variance of the mean over the rows of their means as a draw of rows makes it, and what of it is the problems'."""
    rows = len(values)
    if rows < 2:
        return 0.0, 0.0
    alone = sum(_of_problems(row[None]) for row in values)
    both = (alone - rows * _of_problems(values)) / (rows * (rows - 1))
    return float(np.nanmean(values, axis=1).var(ddof=1) / rows), max(both, 0.0)


def _one_problem(count: int) -> float:
    """One problem answered otherwise in all runs: where every answer is alike, luck is not zero but unseen."""
    return 1.0 / count**2
