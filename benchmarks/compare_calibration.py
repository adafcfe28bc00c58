"""How often `compare` claims a difference: where there is none, and where there is the smallest effect it reports.

    python benchmarks/compare_calibration.py [--simulations 1000] [--only own|unequal] [--seed 0]
    python benchmarks/compare_calibration.py --rules

Each line is one kind of comparison: seeds for each arm, held-out problems (`fixed`: the same for all runs; `own`: each
seed has its own; `apart`: fixed, and the arms have different seeds), samples of each problem, and the luck in it: the
standard deviations of the seeds and of what a problem suits one arm better (`suits`), and the correlation of the two
runs of one seed. Problems are as hard as a Beta distribution says. `claims` is the share of simulations with a verdict
other than "not distinguishable" where the arms do not differ; `effect` the mean smallest effect they report; `power`
the share with the right verdict where the arms differ by just that; `covers` the share of intervals around that.

With --rules: three rules for the interval, on normal luck of known size, many mixtures of problems and seeds: the range
of claims over the mixtures, and the half-width over the standard deviation where problems make nearly all of the luck.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
from scipy import special

from rlvr_vocab.analysis.compare.comparison import ArmResults, Comparison, RunResults, compare_arms
from rlvr_vocab.analysis.compare.interval import CAUTION

FIGURES = ("claims", "effect", "power", "covers")


@dataclass(frozen=True)
class Kind:
    """One kind of comparison; `hardness` are the two parameters of the Beta distribution of a problem's chance.

    `other_seeds` and `other_deviation` are those of the other arm, where they are not the same.
    """

    design: str
    seeds: int
    problems: int
    samples: int = 1
    seed_deviation: float = 0.0
    suits: float = 0.0
    correlation: float = 0.0
    hardness: tuple[float, float] = (1.5, 1.5)
    other_seeds: int | None = None
    other_deviation: float | None = None

    @property
    def of_arms(self) -> tuple[tuple[int, float], tuple[int, float]]:
        """Number of seeds and their deviation, of either arm."""
        other = self.seeds if self.other_seeds is None else self.other_seeds
        deviation = self.seed_deviation if self.other_deviation is None else self.other_deviation
        return (self.seeds, self.seed_deviation), (other, deviation)


UNEQUAL = tuple(
    Kind("apart", seeds, 500, 1, deviation, other_seeds=other, other_deviation=other_deviation)
    for seeds, other, deviation, other_deviation in (
        (2, 3, 0.05, 0.05),
        (2, 5, 0.05, 0.02),
        (2, 8, 0.05, 0.01),
        (2, 8, 0.06, 0.0),
        (2, 10, 0.05, 0.05),
        (3, 4, 0.05, 0.05),
        (3, 10, 0.05, 0.01),
        (4, 10, 0.05, 0.0),
    )
)
KINDS = (
    *(Kind("fixed", seeds, 500, seed_deviation=luck) for seeds in (2, 3, 5) for luck in (0.0, 0.02, 0.05)),
    *(Kind("own", seeds, 500, seed_deviation=luck) for seeds in (2, 3, 5) for luck in (0.0, 0.02, 0.05)),
    *(Kind("apart", seeds, 500, seed_deviation=luck) for seeds in (2, 3, 5) for luck in (0.0, 0.02, 0.05)),
    *(Kind(design, 3, 200, 4, 0.02, 0.15) for design in ("fixed", "own", "apart")),
    Kind("fixed", 5, 1000, 4, 0.01, 0.2),
    *(Kind(design, 3, 50, 1, 0.02) for design in ("fixed", "own")),
    *(Kind(design, 3, 500, 1, 0.03, correlation=0.8) for design in ("fixed", "own")),
    *(Kind(design, 3, 100, 8, 0.01, 0.1, hardness=(0.4, 4.0)) for design in ("fixed", "apart")),
    *UNEQUAL,
)


class Simulation:
    """Draws comparisons of one kind.

    Args:
        effect: true difference of the arms; their chances are moved apart so far that it comes out so.
    """

    def __init__(self, kind: Kind, effect: float, generator: np.random.Generator) -> None:
        self.kind = kind
        self.generator = generator
        self.shift = self._shift(effect)

    def draw(self) -> tuple[ArmResults, ArmResults]:
        kind = self.kind
        shared = np.sqrt(kind.correlation) * self.generator.normal(
            0, kind.seed_deviation, max(seeds for seeds, _ in kind.of_arms)
        )
        runs = tuple(
            np.sqrt(1 - kind.correlation) * self.generator.normal(0, deviation, seeds) + shared[:seeds]
            for seeds, deviation in kind.of_arms
        )
        sets = [self._problems() for _ in range(kind.seeds if kind.design == "own" else 1)]
        return self._arm("baseline", runs[0], sets, 0), self._arm("other", runs[1], sets, 1)

    def _problems(self) -> np.ndarray:
        """The chance of each problem in each arm before luck of seeds, shape (2, problems)."""
        kind = self.kind
        chances = self.generator.beta(*kind.hardness, kind.problems) + self.generator.normal(
            0, kind.suits / np.sqrt(2), (2, kind.problems)
        )
        return chances + np.array([[-self.shift], [self.shift]])

    def _arm(self, name: str, luck: np.ndarray, sets: list[np.ndarray], arm: int) -> ArmResults:
        kind, runs = self.kind, []
        for seed in range(len(luck)):
            number = seed if kind.design == "own" else 0
            chances = np.clip(sets[number][arm] + luck[seed], 0, 1)
            scores = self.generator.random((kind.samples, kind.problems)) < chances
            problems = [*range(number * kind.problems, (number + 1) * kind.problems)] * kind.samples
            named = f"{name}-{seed}" if kind.design == "apart" else seed
            runs.append(RunResults(named, problems, scores.ravel().astype(float)))
        return ArmResults(name, runs)

    def _shift(self, effect: float) -> float:
        """How far to move either arm: chances end at 0 and 1, so that half of the effect would make less of it."""
        if effect == 0.0:
            return 0.0
        kind, many = self.kind, 200_000
        chances = self.generator.beta(*kind.hardness, many) + self.generator.normal(
            0, np.hypot(kind.suits / np.sqrt(2), kind.seed_deviation), many
        )
        low, high = 0.0, 1.0
        for _ in range(40):
            middle = (low + high) / 2
            reached = np.clip(chances + middle, 0, 1).mean() - np.clip(chances - middle, 0, 1).mean()
            low, high = (middle, high) if reached < effect else (low, middle)
        return low


def compared(kind: Kind, effect: float, simulations: int, seed: int) -> list[Comparison]:
    simulation = Simulation(kind, effect, np.random.default_rng(seed))
    return [compare_arms(*simulation.draw()) for _ in range(simulations)]


def figures(kind: Kind, simulations: int, seed: int) -> tuple[str, ...]:
    """FIGURES, as they are printed; no power where the smallest effect is larger than any that there can be."""
    without = compared(kind, 0.0, simulations, seed)
    claims = np.mean([each.verdict != "not distinguishable" for each in without])
    effect = float(np.mean([each.smallest_effect for each in without]))
    if effect >= 1:
        return f"{claims:.1%}", f"{effect:.3f}", "—", "—"
    there = compared(kind, effect, simulations, seed + 1)
    power = np.mean([each.verdict == "higher" for each in there])
    covers = np.mean([each.low <= effect <= each.high for each in there])
    return f"{claims:.1%}", f"{effect:.3f}", f"{power:.0%}", f"{covers:.1%}"


def print_rules(draws: int, generator: np.random.Generator) -> None:
    """Claims without a difference, for pairs of two, three and five seeds."""
    columns = ("rule", "seeds", "claims, lowest", "claims, highest", "half-width where problems decide")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for seeds in (2, 3, 5):
        claims: dict[str, list[float]] = {}
        widths: dict[str, float] = {}
        for only_problems in (0.0, 0.3, 1.0, 3.0, 10.0, 100.0, 1000.0):
            for of_seeds in (0.0, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0):
                deviation = np.sqrt(only_problems + 1 + of_seeds)
                differences = np.abs(generator.normal(0, deviation, draws))
                seen = (1 + of_seeds) * generator.chisquare(seeds - 1, draws) / (seeds - 1)
                for rule, half in rules(only_problems, seen, seeds - 1).items():
                    claims.setdefault(rule, []).append(float((differences > half).mean()))
                    if (only_problems, of_seeds) == (1000.0, 0.0):
                        widths[rule] = float((half / deviation).mean())
        for rule, shares in claims.items():
            print(f"| {rule} | {seeds} | {min(shares):.1%} | {max(shares):.1%} | {widths[rule]:.2f} |")


def rules(only_problems: float, seeds: np.ndarray, freedom: int) -> dict[str, np.ndarray]:
    """Half-widths by three rules, none below that of the problems alone, which have a variance of one more."""
    error = CAUTION * 0.05 / 2
    variance = only_problems + seeds
    normal, student = -special.ndtri(error), -special.stdtrit(freedom, error)
    least = normal * np.sqrt(only_problems + 1)
    satterthwaite = -special.stdtrit(freedom * variance**2 / seeds**2, error)
    found = {
        "t with the degrees of freedom of the seeds": student * np.sqrt(variance),
        "Satterthwaite's degrees of freedom": satterthwaite * np.sqrt(variance),
        "weighted quantile": (only_problems * normal + seeds * student) / np.sqrt(variance),
    }
    return {rule: np.maximum(half, least) for rule, half in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument("--only", choices=("fixed", "own", "apart", "unequal"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rules", action="store_true")
    arguments = parser.parse_args()
    if arguments.rules:
        print_rules(200_000, np.random.default_rng(arguments.seed))
        return
    columns = ("problems", "seeds", "number", "samples", "luck of seeds", "suits", "correlation", *FIGURES)
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for kind in KINDS:
        if arguments.only in (None, kind.design, "unequal" if kind in UNEQUAL else None):
            (seeds, deviation), (others, other_deviation) = kind.of_arms
            told = (
                kind.design,
                f"{seeds} v {others}" if kind in UNEQUAL else seeds,
                kind.problems,
                kind.samples,
                f"{deviation} v {other_deviation}" if kind in UNEQUAL else deviation,
                kind.suits,
                kind.correlation,
            )
            found = figures(kind, arguments.simulations, arguments.seed)
            print(f"| {' | '.join(map(str, (*told, *found)))} |", flush=True)


if __name__ == "__main__":
    main()
