"""From the luck in a difference to its interval, its p-value and the smallest effect that could have been shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import optimize, special

from rlvr_vocab.analysis.compare.luck import Luck, SeedLuck, freedom_of

# Intervals are made for seven tenths of the error that they are named for: a 95 % interval is one of 96.5 %. Scores
# are shares, variances are estimates, degrees of freedom an approximation, and all of that together must not carry the
# share of false claims above what is promised. benchmarks/compare_calibration.py measures what becomes of it.
CAUTION = 0.7
_DRAWS = 256
_SMALLEST_P = 1e-12


def half_width(luck: Luck, error: float) -> float:
    """Half of the interval that misses the true difference with a chance of at most `error`.

    The quantile of Student's t is the mean of that for the problems and those for the seeds, weighted by their
    variances (Cochran and Cox 1950, "Experimental designs"): with two seeds in three the usual
    approximation by Satterthwaite's degrees of freedom claims too often. The interval is never narrower than the luck
    of the problems alone makes it.
    """
    return float(_half_widths(luck, np.array([[each.variance] for each in luck.seeds]), error)[0])


def _half_widths(luck: Luck, seeds: np.ndarray, error: float) -> np.ndarray:
    """The same for several variances of the seeds, shape (parts, several)."""
    of_problems = _quantile(error, luck.problems_df)
    least = of_problems * math.sqrt(luck.problems)
    if not luck.seeds:
        return np.array([least])
    quantiles = np.array([_quantile(error, each.df) for each in luck.seeds])
    weighted = luck.only_problems * of_problems + quantiles @ seeds
    spread = np.sqrt(luck.only_problems + seeds.sum(0))
    return np.maximum(np.divide(weighted, spread, out=np.zeros_like(spread), where=spread > 0), least)


def _quantile(error: float, freedom: float) -> float:
    return -float(special.stdtrit(freedom, CAUTION * error / 2))


def p_value(luck: Luck, difference: float) -> float:
    """The error at which the interval just reaches zero."""
    if half_width(luck, 1.0) >= abs(difference):
        return 1.0
    if half_width(luck, _SMALLEST_P) <= abs(difference):
        return _SMALLEST_P

    def beyond(exponent: float) -> float:
        return half_width(luck, math.exp(exponent)) - abs(difference)

    return math.exp(optimize.brentq(beyond, math.log(_SMALLEST_P), 0.0, xtol=1e-10))


def smallest_effect(luck: Luck, error: float, power: float) -> float:
    """The true difference that a comparison like this one claims, as a difference in its direction, with that chance.

    The power is that of the very rule above, over the luck of the difference (normal) and of the variance of the seeds
    (chi-squared). The standard deviation over few seeds is too small on average; the one used here is right on average.
    """
    likely = _likely(luck)
    widths = _half_widths(likely, _drawn(likely.seeds), error)
    deviation = math.sqrt(likely.variance)

    def missing(effect: float) -> float:
        return float(special.ndtr((effect - widths) / deviation).mean()) - power

    enough = widths.max() + 10 * deviation
    return 0.0 if missing(0.0) >= 0 else float(optimize.brentq(missing, 0.0, enough, rtol=1e-9))


def _drawn(parts: Sequence[SeedLuck]) -> np.ndarray:
    """Variances as they may be seen, each combination of them as likely as any other; shape (parts, combinations)."""
    number = _DRAWS if len(parts) < 2 else math.isqrt(_DRAWS) * 2
    shares = (np.arange(number) + 0.5) / number
    drawn = [each.variance * special.chdtri(each.df, 1 - shares) / each.df for each in parts]
    return np.array([each.ravel() for each in np.meshgrid(*drawn)])


def _likely(luck: Luck) -> Luck:
    """With variances of the seeds that make their standard deviation right on average (c4 of control charts).

    What the problems put into them is known much better: they cannot be less than that.
    """
    if not luck.seeds:
        return luck
    half = freedom_of(luck.seeds) / 2
    shrunk = math.exp(special.gammaln(half + 0.5) - special.gammaln(half)) / math.sqrt(half)
    seeds = (replace(each, variance=max(each.variance / shrunk**2, each.of_problems)) for each in luck.seeds)
    return replace(luck, seeds=tuple(seeds))
