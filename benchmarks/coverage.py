"""How often 95 % intervals of an accuracy hold the truth, where the samples of a problem are alike.

    python benchmarks/coverage.py [--repetitions 1000] [--unequal]

Each repetition draws problems of a kind (their chances of being solved), samples each of them, and asks whether the
interval holds the mean chance of that kind. Compared are `share_interval`, which `rlvr-vocab evaluate` uses, and what
else could be used: Student's t on the problems' means, Wilson's interval with the effective sample size
p(1 - p) / SE², the percentile bootstrap that draws problems, and Wilson's interval that takes samples for problems.
With --unequal each problem has from one to all of the samples graded.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from scipy import stats

from rlvr_vocab.statistics import share_interval

Ends = tuple[np.ndarray, np.ndarray]  # low and high, one of each per repetition
Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]

CONFIDENCE = 0.95
SIZES = ((30, 8), (50, 4), (100, 1), (100, 16), (500, 4))
KINDS: dict[str, tuple[float, Draw]] = {
    "Beta(2, 2)": (0.5, lambda rng, shape: rng.beta(2, 2, shape)),
    "Beta(0.5, 0.5)": (0.5, lambda rng, shape: rng.beta(0.5, 0.5, shape)),
    "Beta(0.5, 1.5)": (0.25, lambda rng, shape: rng.beta(0.5, 1.5, shape)),
    "Beta(0.1, 1.9)": (0.05, lambda rng, shape: rng.beta(0.1, 1.9, shape)),
    "Beta(9, 1)": (0.9, lambda rng, shape: rng.beta(9, 1, shape)),
    "0.1 or 0.9": (0.5, lambda rng, shape: np.where(rng.random(shape) < 0.5, 0.9, 0.1)),
    "0.02 or 0.98": (0.116, lambda rng, shape: np.where(rng.random(shape) < 0.1, 0.98, 0.02)),
    "0.02, 3 % 0.98": (0.0488, lambda rng, shape: np.where(rng.random(shape) < 0.03, 0.98, 0.02)),
    "always 0.7": (0.7, lambda rng, shape: np.full(shape, 0.7)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--unequal", action="store_true")
    arguments = parser.parse_args()
    names = ("ours", "t", "n_eff", "bootstrap", "samples")
    print(f"{'difficulty':<18}{'problems':>9}{'samples':>8}" + "".join(f"{name:>11}" for name in names), flush=True)
    coverages: list[list[float]] = []
    for kind, (truth, draw) in KINDS.items():
        for problems, samples in SIZES:
            rng = np.random.default_rng(0)
            chances = draw(rng, (arguments.repetitions, problems))
            sizes = rng.integers(1, samples + 1, chances.shape) if arguments.unequal else np.full_like(chances, samples)
            shares = rng.binomial(sizes.astype(int), chances) / sizes
            coverages.append([100 * np.mean((low <= truth) & (truth <= high)) for low, high in all_ends(shares, sizes)])
            figures = "".join(f"{coverage:>11.1f}" for coverage in coverages[-1])
            print(f"{kind:<18}{problems:>9}{samples:>8}{figures}", flush=True)
    inside = np.mean([[93 <= coverage <= 97 for coverage in row] for row in coverages], axis=0)
    for label, values in (("lowest", np.min(coverages, axis=0)), ("highest", np.max(coverages, axis=0))):
        print(f"{label:<35}" + "".join(f"{value:>11.1f}" for value in values))
    print(f"{'within 93 to 97 %':<35}" + "".join(f"{share:>11.0%}" for share in inside))


def all_ends(shares: np.ndarray, sizes: np.ndarray) -> tuple[Ends, ...]:
    """Ends by each method, for `(repetitions, problems)` shares of so many samples."""
    return ours(shares), student(shares), effective_size(shares), bootstrap(shares), samples_as_problems(shares, sizes)


def ours(shares: np.ndarray) -> Ends:
    found = [share_interval(values) for values in shares]
    ends = np.array([[each.low, each.high] for each in found if each is not None])
    return ends[:, 0], ends[:, 1]


def student(shares: np.ndarray) -> Ends:
    problems = shares.shape[1]
    half = stats.t.ppf((1 + CONFIDENCE) / 2, problems - 1) * shares.std(axis=1, ddof=1) / np.sqrt(problems)
    return shares.mean(axis=1) - half, shares.mean(axis=1) + half


def effective_size(shares: np.ndarray) -> Ends:
    """Wilson's interval for as many independent samples as would have the standard error that is seen."""
    problems, mean = shares.shape[1], shares.mean(axis=1)
    variance = shares.var(axis=1, ddof=1) / problems
    spread = variance > 0
    size = np.full(len(mean), float(problems))
    size[spread] = np.maximum(problems, mean[spread] * (1 - mean[spread]) / variance[spread])
    return wilson(mean, size, stats.t.ppf((1 + CONFIDENCE) / 2, problems - 1))


def bootstrap(shares: np.ndarray) -> Ends:
    """The percentile bootstrap; how often each problem is drawn is the same for all repetitions."""
    problems = shares.shape[1]
    counts = np.random.default_rng(1).multinomial(problems, np.full(problems, 1 / problems), size=2000)
    low, high = np.quantile(shares @ counts.T / problems, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=1)
    return low, high


def samples_as_problems(shares: np.ndarray, sizes: np.ndarray) -> Ends:
    mean = (shares * sizes).sum(axis=1) / sizes.sum(axis=1)
    return wilson(mean, sizes.sum(axis=1), stats.norm.ppf((1 + CONFIDENCE) / 2))


def wilson(mean: np.ndarray, size: np.ndarray, quantile: float) -> Ends:
    centre = mean + quantile**2 / (2 * size)
    half = quantile * np.sqrt(mean * (1 - mean) / size + quantile**2 / (4 * size**2))
    return (centre - half) / (1 + quantile**2 / size), (centre + half) / (1 + quantile**2 / size)


if __name__ == "__main__":
    main()
