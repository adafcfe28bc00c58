"""Confidence intervals in which a problem, not a sample, is the unit that was drawn.

Samples of one problem are alike: ten samples of it are less evidence than one sample of each of ten problems. So every
function here takes one value per problem, the mean of its samples.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
WILSON, BOOTSTRAP = "wilson score over problems", "bayesian bootstrap over problems"
STUDENT, ONE_VALUE = "student t over problems", "the same value for every problem"

# The noise of their quantiles is 1.4 % of the half-width of an interval.
_DRAWS = 10_000
# Half a problem at each end, as Jeffreys' prior has it where every problem is solved or not.
_AT_EACH_END = 0.5


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval, from that many problems and samples of them."""

    estimate: float
    low: float
    high: float
    confidence: float
    method: str
    problems: int
    samples: int


def share_interval(values: Sequence[float] | np.ndarray, samples: int | None = None) -> Interval | None:
    """The mean over problems of values from 0 to 1; None without problems.

    Wilson's score interval (1927) where every value is 0 or 1, else the Bayesian bootstrap (Rubin 1981), with half a
    problem at 0 and half a problem at 1 added. `samples` is by default the number of problems.

    >>> found = share_interval([0.0, 0.5, 1.0, 1.0])
    >>> found.estimate, round(found.low, 2), round(found.high, 2)
    (0.625, 0.24, 0.91)
    """
    values = np.asarray(values, dtype=float)
    if not values.size:
        return None
    if np.isin(values, (0, 1)).all():
        low, high = _wilson(values)
        return _interval(values, low, high, WILSON, samples)
    low, high = _bootstrapped(values, (0.0, 1.0))
    return _interval(values, low, high, BOOTSTRAP, samples)


def difference_interval(differences: Sequence[float] | np.ndarray, samples: int | None = None) -> Interval | None:
    """The mean of paired differences, one per problem, each from -1 to 1; None without problems.

    Student's t over problems. Where all differences are the same there is no spread, and it is the bootstrap of
    `share_interval` from -1 to 1, averaged with its mirror image so that both directions are treated alike.
    """
    differences = np.asarray(differences, dtype=float)
    if not differences.size:
        return None
    if np.ptp(differences) == 0:
        low, high = _bootstrapped(differences, (-1.0, 1.0))
        other_low, other_high = _bootstrapped(-differences, (-1.0, 1.0))
        return _interval(differences, (low - other_high) / 2, (high - other_low) / 2, BOOTSTRAP, samples)
    half = _student_half_width(differences - differences.mean())
    low, high = max(-1.0, differences.mean() - half), min(1.0, differences.mean() + half)
    return _interval(differences, low, high, STUDENT, samples)


def mean_interval(
    values: Sequence[float] | np.ndarray, samples: int | None = None, least: float = -np.inf
) -> Interval | None:
    """Student's t of the mean over problems of values from `least` up, such as lengths; None without problems.

    Where all values are the same, both ends are the estimate, and the method says so.
    """
    return ratio_interval(values, np.ones(len(values)), samples, (least, np.inf))


def ratio_interval(
    numerators: Sequence[float] | np.ndarray,
    denominators: Sequence[float] | np.ndarray,
    samples: int | None = None,
    ends: tuple[float, float] = (-np.inf, np.inf),
) -> Interval | None:
    """The sum of numerators over the sum of denominators, one pair per problem; None where the denominators are 0.

    Student's t on the linearised ratio (Cochran 1977, "Sampling Techniques", eq. 6.13), cut off at `ends`.
    """
    above, below = np.asarray(numerators, dtype=float), np.asarray(denominators, dtype=float)
    if not below.size or below.sum() == 0:
        return None
    ratio = above.sum() / below.sum()
    residuals = (above - ratio * below) / below.mean()
    count = len(below) if samples is None else samples
    if np.ptp(residuals) == 0:
        return Interval(ratio, ratio, ratio, CONFIDENCE, ONE_VALUE, len(below), count)
    half = _student_half_width(residuals)
    low, high = max(ends[0], ratio - half), min(ends[1], ratio + half)
    return Interval(ratio, low, high, CONFIDENCE, STUDENT, len(below), count)


def _wilson(values: np.ndarray) -> tuple[float, float]:
    from scipy.special import ndtri  # --help does not need it

    n, share, z = len(values), values.mean(), ndtri((1 + CONFIDENCE) / 2)
    centre, half = share + z**2 / (2 * n), z * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    low, high = (centre - half) / (1 + z**2 / n), (centre + half) / (1 + z**2 / n)
    return (0.0 if share == 0 else low), (1.0 if share == 1 else high)  # which rounding would miss


def _bootstrapped(values: np.ndarray, ends: tuple[float, float]) -> tuple[float, float]:
    """Quantiles of the Dirichlet-weighted mean; the weights of problems of equal value add up to one gamma draw."""
    kinds, counts = np.unique(values, return_counts=True)
    shapes = np.array([*counts, _AT_EACH_END, _AT_EACH_END])
    weights = np.random.default_rng(0).standard_gamma(shapes, size=(_DRAWS, len(shapes)))
    means = weights @ np.array([*kinds, *ends]) / weights.sum(axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def _student_half_width(residuals: np.ndarray) -> float:
    """Half-width of the interval of a mean, from residuals with mean 0."""
    from scipy.special import stdtrit

    freedom = len(residuals) - 1
    error = np.sqrt(np.sum(residuals**2) / freedom / len(residuals))
    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2) * error)


def _interval(values: np.ndarray, low: float, high: float, method: str, samples: int | None) -> Interval:
    count, estimate = len(values) if samples is None else samples, float(values.mean())
    # Where all values are the same and next to an end, what was added there would leave the estimate outside.
    low, high = min(float(low), estimate), max(float(high), estimate)
    return Interval(estimate, low, high, CONFIDENCE, method, len(values), count)


def majority_share(votes: Sequence[Hashable | None], right: Sequence[bool]) -> float:
    """Probability that the majority's answer is right when ties are broken by lot (Wang et al. 2022, self-consistency).

    Equal votes are one answer; None does not vote. Where one answer is right and wrong, its share counts.

    >>> majority_share(["42", "42", "41", "41", None], [True, True, False, False, False])
    0.5
    """
    groups: dict[Hashable, list[bool]] = defaultdict(list)
    for vote, is_right in zip(votes, right, strict=True):
        if vote is not None:
            groups[vote].append(is_right)
    most = max(map(len, groups.values()), default=0)
    winners = [sum(marks) / len(marks) for marks in groups.values() if len(marks) == most]
    return sum(winners) / len(winners) if winners else 0.0


def pass_at_k(samples: int, right: int, k: int) -> float:
    """The unbiased estimate for one problem, from all its samples, of which there are at least k.

    1 - C(n - c, k) / C(n, k) for n samples of which c are right (Chen et al. 2021, "Evaluating Large Language Models
    Trained on Code", eq. 1), multiplied out so that no binomial coefficient overflows.
    """
    if samples - right < k:
        return 1.0
    return float(1.0 - np.prod(1.0 - k / np.arange(samples - right + 1, samples + 1)))


def passes_at_k(samples: Sequence[int], right: Sequence[int], k: int) -> list[float]:
    """`pass_at_k` of each problem that has k samples; those with fewer are left out."""
    return [pass_at_k(n, c, k) for n, c in zip(samples, right, strict=True) if n >= k]


def usual_ks(samples: int) -> Iterator[int]:
    """1, 2, 4, … and the number of samples itself."""
    k = 1
    while k < samples:
        yield k
        k *= 2
    yield samples
