"""pass@k: how often at least one of k samples of a problem is right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np


def pass_at_k(samples: int, right: int, k: int) -> float:
    """The unbiased estimate for one problem, from all its samples.

    1 - C(n - c, k) / C(n, k) for n samples of which c are right (Chen et al. 2021, "Evaluating Large Language Models
    Trained on Code", eq. 1): the share of all choices of k samples that hold a right one. Multiplied out, as there, so
    that no binomial coefficient overflows.

    Raises:
        ValueError: there are fewer than k samples, or more right ones than samples.

    Example:
        >>> pass_at_k(samples=4, right=1, k=2)
        0.5
    """
    if not 1 <= k <= samples or not 0 <= right <= samples:
        raise ValueError(f"pass@{k} of {right} right out of {samples} samples: no such thing")
    if samples - right < k:
        return 1.0
    return float(1.0 - np.prod(1.0 - k / np.arange(samples - right + 1, samples + 1)))


def passes_at_k(samples: Sequence[int], right: Sequence[int], k: int) -> list[float]:
    """`pass_at_k` of each problem that has k samples; those with fewer say nothing of it and are left out."""
    return [pass_at_k(n, c, k) for n, c in zip(samples, right, strict=True) if n >= k]


def usual_ks(samples: int) -> Iterator[int]:
    """1, 2, 4, … and the number of samples itself.

    >>> list(usual_ks(6))
    [1, 2, 4, 6]
    """
    k = 1
    while k < samples:
        yield k
        k *= 2
    yield samples
