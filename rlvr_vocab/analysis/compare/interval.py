"""The variance of the difference of two arms, and from it the interval, the p-value and the smallest effect.

A difference of mean scores varies with the held-out problems and with the seeds of training, which are crossed:

    V = V_problems + V_seeds - V_both (Cameron, Gelbach, Miller 2011; Owen 2007, "The pigeonhole bootstrap")

With few seeds the terms of these papers are biased; here they are unbiased (docs/evaluation.md derives them).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize, special

# A 95 % interval is computed as one of 96.5 %. Scores are shares, variances are estimates and degrees of freedom an
# approximation; together they must not raise the share of false claims above the promised one.
# benchmarks/compare_calibration.py measures it.
CAUTION = 0.7
_DRAWS = 256
_SMALLEST_P = 1e-12


@dataclass(frozen=True)
class SeedVariance:
    """Variance over the draw of the seeds, of both arms or of one, with its degrees of freedom.

    variance: as observed, so that it contains the variance of the answers of each seed.
    of_problems: the part of the variance over problems that it contains.
    """

    variance: float
    of_problems: float
    df: float


@dataclass(frozen=True)
class DifferenceVariance:
    """The parts of the variance of a difference of means.

    problems: variance over the draw of the problems, the seeds fixed; problems_df: its degrees of freedom.
    seeds: one part, or one for each arm; empty where an arm has one run.
    """

    problems: float
    problems_df: float
    seeds: tuple[SeedVariance, ...] = ()

    @property
    def only_problems(self) -> float:  # the part that `seeds` do not contain
        return max(self.problems - sum(each.of_problems for each in self.seeds), 0.0)

    def half_width(self, error: float) -> float:
        """Half of the interval that misses the true difference with a chance of at most `error`.

        The quantile of Student's t is the mean of those for the problems and for the seeds, weighted by their variances
        (Cochran and Cox 1950, "Experimental designs"): with two or three seeds Satterthwaite's approximation claims too
        often. The interval is never narrower than that of the problems alone.
        """
        return float(self._half_widths(np.array([[each.variance] for each in self.seeds]), error)[0])

    def _half_widths(self, seeds: np.ndarray, error: float) -> np.ndarray:
        """`half_width` for several variances of the seeds, shape (parts, several)."""
        of_problems = _quantile(error, self.problems_df)
        least = of_problems * math.sqrt(self.problems)
        if not self.seeds:
            return np.array([least])
        quantiles = np.array([_quantile(error, each.df) for each in self.seeds])
        weighted = self.only_problems * of_problems + quantiles @ seeds
        spread = np.sqrt(self.only_problems + seeds.sum(0))
        return np.maximum(np.divide(weighted, spread, out=np.zeros_like(spread), where=spread > 0), least)

    def p_value(self, difference: float) -> float:
        """The error at which the interval just reaches zero."""
        if self.half_width(1.0) >= abs(difference):
            return 1.0
        if self.half_width(_SMALLEST_P) <= abs(difference):
            return _SMALLEST_P

        def beyond(exponent: float) -> float:
            return self.half_width(math.exp(exponent)) - abs(difference)

        return math.exp(optimize.brentq(beyond, math.log(_SMALLEST_P), 0.0, xtol=1e-10))

    def smallest_effect(self, error: float, power: float) -> float:
        """The minimum detectable effect: the true difference that this rule claims with a chance of `power`.

        The power is taken over the difference (normal) and the variance of the seeds (chi-squared). The deviation
        over few seeds, too small on average, is corrected (c4 of control charts); the problems bound it below.
        """
        seeds = self.seeds
        if seeds:
            half = degrees_of_freedom(seeds) / 2
            shrunk = math.exp(special.gammaln(half + 0.5) - special.gammaln(half)) / math.sqrt(half)
            seeds = tuple(replace(each, variance=max(each.variance / shrunk**2, each.of_problems)) for each in seeds)
        unbiased = replace(self, seeds=seeds)
        widths = unbiased._half_widths(_drawn(seeds), error)
        # Never less than the deviation over the problems alone.
        deviation = math.sqrt(max(unbiased.only_problems + sum(each.variance for each in seeds), self.problems))

        def missing(effect: float) -> float:
            return float(special.ndtr((effect - widths) / deviation).mean()) - power

        enough = widths.max() + 10 * deviation
        return 0.0 if missing(0.0) >= 0 else float(optimize.brentq(missing, 0.0, enough, rtol=1e-9))


def difference_variance(
    baseline: np.ndarray, other: np.ndarray, *, paired: bool, largest: float = 1.0
) -> DifferenceVariance:
    """The variance of the difference of the means of two arms, whose scores lie at most `largest` apart.

    Without pairs each arm has a seed variance of its own. Arms with as many runs share degrees of freedom, as in
    Welch's test (1947); with unequal numbers that test claims too often, and each arm keeps its own.
    baseline, other: scores of shape (runs, problems); of pairs, NaN where a pair has not answered.
    """
    count = baseline.shape[1]
    differences = other - baseline if paired else (other.mean(0) - baseline.mean(0))[None]
    # One problem answered otherwise in all runs: where all answers are alike, the variance is not zero but unseen.
    problems, df = max(_of_problems(differences), (largest / count) ** 2), max(count - 1, 1)
    if min(len(baseline), len(other)) < 2:
        return DifferenceVariance(problems, df)
    if paired:
        return DifferenceVariance(problems, df, (_of_seeds(differences),))
    arms = one, two = _of_seeds(baseline), _of_seeds(other)
    if len(baseline) == len(other):
        together = one.variance + two.variance, one.of_problems + two.of_problems
        return DifferenceVariance(problems, df, (SeedVariance(*together, degrees_of_freedom(arms)),))
    return DifferenceVariance(problems, df, arms)


def degrees_of_freedom(parts: Sequence[SeedVariance]) -> float:
    """Degrees of freedom of a sum of variances (Satterthwaite 1946)."""
    uncertainty = sum(each.variance**2 / each.df for each in parts)
    return sum(each.variance for each in parts) ** 2 / uncertainty if uncertainty else sum(each.df for each in parts)


def _of_problems(values: np.ndarray) -> float:
    """Variance of the mean over the rows of their means, over the draw of the problems, which are clusters."""
    answered = ~np.isnan(values)
    counts = answered.sum(1)
    rest = np.where(answered, values - np.nanmean(values, axis=1, keepdims=True), 0.0)
    influence = (rest / (len(values) * counts[:, None])).sum(0)
    size = counts.mean()
    return float((influence**2).sum() * size / max(size - 1, 1))


def _of_seeds(values: np.ndarray) -> SeedVariance:
    """Variance of the mean over two rows or more of their means, over the draw of the rows."""
    rows = len(values)
    alone = sum(_of_problems(row[None]) for row in values)
    both = (alone - rows * _of_problems(values)) / (rows * (rows - 1))
    return SeedVariance(float(np.nanmean(values, axis=1).var(ddof=1) / rows), max(both, 0.0), rows - 1)


def _quantile(error: float, freedom: float) -> float:
    return -float(special.stdtrit(freedom, CAUTION * error / 2))


def _drawn(parts: Sequence[SeedVariance]) -> np.ndarray:
    """Quantiles of the observed variances, all combinations of them; shape (parts, combinations)."""
    number = _DRAWS if len(parts) < 2 else math.isqrt(_DRAWS) * 2
    shares = (np.arange(number) + 0.5) / number
    drawn = [each.variance * special.chdtri(each.df, 1 - shares) / each.df for each in parts]
    return np.array([each.ravel() for each in np.meshgrid(*drawn)])
