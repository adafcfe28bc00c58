"""What a comparison takes: for each run of an arm the scores of its held-out problems, and how they are matched."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlvr_vocab.errors import UserError

# Of the problems of the run that has fewest: with less in common, the runs are not on one problem set.
_ON_ONE_SET = 0.5


@dataclass(frozen=True)
class RunResults:
    """What one run got on held-out problems.

    Attributes:
        seed: runs of two arms with one seed are a pair.
        problems: for each sample the problem that it answers, as anything that is equal for the same problem.
        scores: for each sample its score, 1 for right and 0 for wrong.
    """

    seed: Hashable
    problems: Sequence[Hashable]
    scores: Sequence[float]


@dataclass(frozen=True)
class ArmResults:
    """The runs of one arm: one configuration with several seeds."""

    name: str
    runs: Sequence[RunResults]


@dataclass(frozen=True)
class Pairs:
    """Runs of both arms with the same seeds, on problems that may be others for each seed.

    Attributes:
        seeds: those that are in both arms.
        baseline, other: mean score, shape (seeds, problems), NaN where that pair has not answered that problem.
        left_out: problems of these runs that one of the pair answered and the other did not.
    """

    seeds: tuple[Hashable, ...]
    baseline: np.ndarray
    other: np.ndarray
    left_out: int


@dataclass(frozen=True)
class Apart:
    """Runs of two arms whose seeds have nothing to do with each other, all on the same problems.

    Attributes:
        baseline, other: mean score, shape (runs of the arm, problems).
        left_out: problems that some run answered and not all.
    """

    baseline: np.ndarray
    other: np.ndarray
    left_out: int


def matched(baseline: ArmResults, other: ArmResults, paired: bool | None = None) -> Pairs | Apart:
    """The scores of two arms on the same problems.

    Args:
        paired: whether runs with one seed belong together. None: where both arms have the same seeds, or where the
            problems are others for each seed, so that only runs with one seed have answered the same.

    Raises:
        UserError: an arm has no run or two with one seed, or the arms have no seed or no problem in common.
    """
    one, two = _by_seed(baseline), _by_seed(other)
    if paired is None:
        paired = one.keys() == two.keys() or not _on_one_set([*one.values(), *two.values()])
    return _pairs(one, two) if paired else _apart(one, two)


Scores = Mapping[Hashable, float]


def problem_means(run: RunResults) -> dict[Hashable, float]:
    """The mean score of each problem over its samples."""
    if len(run.problems) != len(run.scores):
        raise ValueError(f"{len(run.problems)} problems for {len(run.scores)} scores")
    numbers: dict[Hashable, int] = {}
    at = [numbers.setdefault(problem, len(numbers)) for problem in run.problems]
    means = np.bincount(at, np.asarray(run.scores, float)) / np.bincount(at) if at else ()
    return dict(zip(numbers, map(float, means), strict=True))


def _by_seed(arm: ArmResults) -> dict[Hashable, Scores]:
    runs: dict[Hashable, Scores] = {run.seed: problem_means(run) for run in arm.runs}
    if len(runs) < len(arm.runs):
        seeds = [run.seed for run in arm.runs]
        twice = next(seed for seed in seeds if seeds.count(seed) > 1)
        raise UserError(f"{arm.name} has two runs with seed {twice}: they are one and the same experiment")
    if not runs or not all(runs.values()):
        raise UserError(f"{arm.name} has no results to compare")
    return runs


def _in_all(runs: Sequence[Scores]) -> list[Hashable]:
    common = set(runs[0]).intersection(*runs[1:])
    return [problem for problem in runs[0] if problem in common]


def _on_one_set(runs: Sequence[Scores]) -> bool:
    return len(_in_all(runs)) >= _ON_ONE_SET * min(map(len, runs))


def _pairs(one: Mapping[Hashable, Scores], two: Mapping[Hashable, Scores]) -> Pairs:
    common = {seed: _in_all([one[seed], two[seed]]) for seed in one if seed in two}
    if not common:
        raise UserError(f"the arms have no seed in common ({_listed(one)} and {_listed(two)}), and no problems either")
    seeds = tuple(seed for seed, problems in common.items() if problems)
    if not seeds:
        raise UserError("the arms have no held-out problem in common: nothing can be compared problem by problem")
    columns = {problem: number for number, problem in enumerate({each: 0 for s in seeds for each in common[s]})}
    tables = []
    for runs in (one, two):
        table = np.full((len(seeds), len(columns)), np.nan)
        for row, seed in enumerate(seeds):
            table[row, [columns[each] for each in common[seed]]] = [runs[seed][each] for each in common[seed]]
        tables.append(table)
    left_out = sum(len(one[seed].keys() ^ two[seed].keys()) for seed in common)
    return Pairs(seeds, tables[0], tables[1], left_out)


def _apart(one: Mapping[Hashable, Scores], two: Mapping[Hashable, Scores]) -> Apart:
    runs = [*one.values(), *two.values()]
    common = _in_all(runs)
    if not common:
        raise UserError("no held-out problem was answered by all runs: nothing can be compared problem by problem")
    tables = [np.array([[run[problem] for problem in common] for run in arm.values()]) for arm in (one, two)]
    return Apart(tables[0], tables[1], len(set().union(*runs)) - len(common))


def _listed(seeds: Mapping[Hashable, Scores]) -> str:
    return ", ".join(map(str, seeds))
