"""From the luck in a difference to its interval, its p-value and the smallest effect that could have been shown."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy import optimize, special

from rlvr_vocab.analysis.compare.luck import Luck

# Intervals are made for seven tenths of the error that they are named for: a 95 % interval is one of 96.5 %. Scores
# are shares, variances are estimates, degrees of freedom an approximation, and all of that together must not carry the
# share of false claims above what is promised. benchmarks/compare_calibration.py measures what becomes of it.
CAUTION = 0.7
_MIDPOINTS = (np.arange(256) + 0.5) / 256
_SMALLEST_P = 1e-12


def half_width(luck: Luck, error: float) -> float:
    """Half of the interval that misses the true difference with a chance of at most `error`.

    The quantile of Student's t is the mean of that for the problems and that for the seeds, weighted by their
    variances (Cochran and Cox 1950, "Experimental designs"): with two seeds in three the usual
    approximation by Satterthwaite's degrees of freedom claims too often. The interval is never narrower than the luck
    of the problems alone makes it.
    """
    return float(_half_widths(luck, np.array([luck.seeds]), error)[0])


def _half_widths(luck: Luck, seeds: np.ndarray, error: float) -> np.ndarray:
    """The same for several variances of the seeds."""
    of_problems = _quantile(error, luck.problems_df)
    least = of_problems * math.sqrt(luck.problems)
    if not luck.seeds_df:
        return np.full(len(seeds), least)
    weighted = luck.only_problems * of_problems + seeds * _quantile(error, luck.seeds_df)
    spread = np.sqrt(luck.only_problems + seeds)
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
    freedom = likely.seeds_df or 1.0
    drawn = likely.seeds * special.chdtri(freedom, 1 - _MIDPOINTS) / freedom
    widths = _half_widths(likely, drawn, error)
    deviation = math.sqrt(likely.variance)

    def missing(effect: float) -> float:
        return float(special.ndtr((effect - widths) / deviation).mean()) - power

    enough = widths.max() + 10 * deviation
    return 0.0 if missing(0.0) >= 0 else float(optimize.brentq(missing, 0.0, enough, rtol=1e-9))


def _likely(luck: Luck) -> Luck:
    """With the variance of the seeds that makes their standard deviation right on average (c4 of control charts).

    What the problems put into it is known much better: it cannot be less than that.
    """
    if not luck.seeds_df:
        return luck
    half = luck.seeds_df / 2
    shrunk = math.exp(special.gammaln(half + 0.5) - special.gammaln(half)) / math.sqrt(half)
    return replace(luck, seeds=max(luck.seeds / shrunk**2, luck.both))
