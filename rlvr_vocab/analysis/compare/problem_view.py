"""Which problems the arms differ on: a look at single ones, from which nothing follows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass

from rlvr_vocab.analysis.compare.arms import problem_means
from rlvr_vocab.analysis.compare.stories import ArmStory, problem_of


@dataclass(frozen=True)
class ProblemShares:
    """How often two arms solved a problem that both met.

    Attributes:
        baseline, other: share of right answers, over the runs that met it.
        runs: how many of either arm did.
    """

    prompt: str
    solution: str
    baseline: float
    other: float
    runs: tuple[int, int]

    @property
    def difference(self) -> float:
        return self.other - self.baseline


def shares(baseline: ArmStory, other: ArmStory) -> list[ProblemShares]:
    """Every problem that both arms met, the ones at which the other arm is ahead first."""
    one, two = _by_problem(baseline), _by_problem(other)
    met = dict.fromkeys(problem_of(answer) for run in baseline.runs for answer in run.answers)
    found = [
        ProblemShares(*problem, _mean(one[problem]), _mean(two[problem]), (len(one[problem]), len(two[problem])))
        for problem in met
        if problem in one and problem in two
    ]
    return sorted(found, key=lambda each: (-each.difference, each.prompt))


def only_one_solves(found: list[ProblemShares]) -> tuple[int, int]:
    """How many problems only the baseline ever solves, and how many only the other arm."""
    return (
        sum(each.baseline > 0 and each.other == 0 for each in found),
        sum(each.other > 0 and each.baseline == 0 for each in found),
    )


def _by_problem(arm: ArmStory) -> dict[Hashable, list[float]]:
    """The share of right answers of each run."""
    found: dict[Hashable, list[float]] = defaultdict(list)
    for run in arm.runs:
        for problem, score in problem_means(run.results).items():
            found[problem].append(score)
    return found


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
