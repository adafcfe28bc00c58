"""Confidence intervals over problems: each function takes one value per problem, the mean of its samples.

Ten samples of one problem are less evidence than one sample of each of ten problems.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
WILSON, BOOTSTRAP = "wilson score over problems", "bayesian bootstrap over problems"
STUDENT, ONE_VALUE = "student t over problems", "the same value for every problem"

# The noise of their quantiles is 1.4 % of the half-width of an interval.
_DRAWS = 10_000
# Half a problem at each end, as in Jeffreys' prior for problems that are solved or not.
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
    """The mean over problems of values from 0 to 1; None without problems. `samples` is by default their number.

    Wilson's interval (1927) if all are 0 or 1, else Bayesian bootstrap (Rubin 1981) with half a problem at each end.

    >>> found = share_interval([0.0, 0.5, 1.0, 1.0])
    >>> found.estimate, round(found.low, 2), round(found.high, 2)
    (0.625, 0.24, 0.91)
    """
    values = np.asarray(values, dtype=float)
    if not values.size:
        return None
    if np.isin(values, (0, 1)).all():
        return _interval(values, _wilson(values), WILSON, samples)
    return _interval(values, _bootstrapped(values, (0.0, 1.0)), BOOTSTRAP, samples)


def difference_interval(differences: Sequence[float] | np.ndarray) -> Interval | None:
    """The mean of paired differences, one per problem, each from -1 to 1; None without problems.

    Student's t over problems. Equal differences have no spread: then the bootstrap of `share_interval` from -1 to 1,
    averaged with its mirror image.
    """
    differences = np.asarray(differences, dtype=float)
    if not differences.size:
        return None
    if np.ptp(differences) == 0:
        (low, high), (low_mirrored, high_mirrored) = (
            _bootstrapped(values, (-1.0, 1.0)) for values in (differences, -differences)
        )
        both = (low - high_mirrored) / 2, (high - low_mirrored) / 2
        return _interval(differences, both, BOOTSTRAP)
    mean, half = differences.mean(), _student_half_width(differences - differences.mean())
    return _interval(differences, (max(-1.0, mean - half), min(1.0, mean + half)), STUDENT)


def mean_interval(
    values: Sequence[float] | np.ndarray, samples: int | None = None, least: float = -np.inf
) -> Interval | None:
    """Student's t of the mean over problems of values from `least` up, such as lengths; None without problems.

    For equal values both ends are the estimate, and the method is `ONE_VALUE`.
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
    half, method = (_student_half_width(residuals), STUDENT) if np.ptp(residuals) else (0.0, ONE_VALUE)
    low, high = max(ends[0], ratio - half), min(ends[1], ratio + half)
    return Interval(ratio, low, high, CONFIDENCE, method, len(below), count)


def _wilson(values: np.ndarray) -> tuple[float, float]:
    from scipy.special import ndtri  # --help does not need it

    n, share, z = len(values), values.mean(), ndtri((1 + CONFIDENCE) / 2)
    centre, half = share + z**2 / (2 * n), z * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    low, high = (centre - half) / (1 + z**2 / n), (centre + half) / (1 + z**2 / n)
    return (0.0 if share == 0 else low), (1.0 if share == 1 else high)  # without rounding errors


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


def _interval(values: np.ndarray, ends: tuple[float, float], method: str, samples: int | None = None) -> Interval:
    count, estimate = len(values) if samples is None else samples, float(values.mean())
    # The half problems that the bootstrap adds may leave an estimate near 0 or 1 outside of the interval.
    low, high = min(float(ends[0]), estimate), max(float(ends[1]), estimate)
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


def passes_at_k(samples: Sequence[int], right: Sequence[int], k: int) -> list[float]:
    """The unbiased estimate of pass@k for each problem that has k samples; problems with fewer are left out.

    1 - C(n - c, k) / C(n, k) for n samples of which c are right (Chen et al. 2021, "Evaluating Large Language Models
    Trained on Code", eq. 1), multiplied out so that no binomial coefficient overflows.
    """
    return [
        1.0 if n - c < k else float(1.0 - np.prod(1.0 - k / np.arange(n - c + 1, n + 1)))
        for n, c in zip(samples, right, strict=True)
        if n >= k
    ]


def usual_ks(samples: int) -> list[int]:
    """1, 2, 4, … and the number of samples itself."""
    return [*(1 << power for power in range((samples - 1).bit_length())), samples]
