"""The runs of a comparison: the scores of their held-out problems, and what else they have recorded."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.completions import CompletionFiles
from rlvr_vocab.record.metrics import Row
from rlvr_vocab.record.results import GraderRecord, HeldOutMetric, ProblemResult, grader_text, same_grader
from rlvr_vocab.secrets import without_secrets
from rlvr_vocab.text import listed, visible_text

# Of the problems of the run that has fewest: with less in common, the runs are not on one problem set.
_ON_ONE_SET = 0.5


@dataclass(frozen=True)
class RunResults:
    """The scores of one run on held-out problems.

    Attributes:
        seed: runs of two arms with one seed are a pair.
        problems: for each sample the problem that it answers, as anything that is equal for the same problem.
        scores: for each sample 1 for right and 0 for wrong, or, where nothing is, its score.
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
class MatchedScores:
    """The scores of two arms on the same problems.

    Attributes:
        baseline, other: mean score, shape (runs of the arm, problems). Where runs are paired, the rows of both are in
            the order of the seeds, and NaN where that pair has not answered that problem.
        left_out: problems that some run answered, but not its pair, or, unpaired, not all runs.
        seeds: of the pairs; None where runs are not paired.
    """

    baseline: np.ndarray
    other: np.ndarray
    left_out: int
    seeds: tuple[Hashable, ...] | None = None

    @property
    def range(self) -> float:
        """How far apart the scores lie."""
        both = np.concatenate([self.baseline.ravel(), self.other.ravel()])
        return float(np.nanmax(both) - np.nanmin(both))


def match_scores(baseline: ArmResults, other: ArmResults, paired: bool | None = None) -> MatchedScores:
    """Match the scores of two arms by problem, and by seed where runs are paired.

    Args:
        paired: whether runs with one seed belong together. None: where both arms have the same seeds, or where the
            problems are others for each seed, so that only runs with one seed have answered the same.

    Raises:
        UserError: an arm has no run or two with one seed, or the arms have no seed or no problem in common.
    """
    one, two = _by_seed(baseline), _by_seed(other)
    if paired is None:
        runs = [*one.values(), *two.values()]
        on_one_set = len(_in_all(runs)) >= _ON_ONE_SET * min(map(len, runs))
        paired = one.keys() == two.keys() or not on_one_set
    return _paired(one, two) if paired else _unpaired(one, two)


Scores = Mapping[Hashable, float]


def problem_means(run: RunResults) -> dict[Hashable, float]:
    """The mean score of each problem over its samples."""
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


def _paired(one: Mapping[Hashable, Scores], two: Mapping[Hashable, Scores]) -> MatchedScores:
    common = {seed: _in_all([one[seed], two[seed]]) for seed in one if seed in two}
    if not common:
        raise UserError(f"the arms have no seed in common ({listed(one)} and {listed(two)}), and no problems either")
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
    return MatchedScores(tables[0], tables[1], left_out, seeds)


def _unpaired(one: Mapping[Hashable, Scores], two: Mapping[Hashable, Scores]) -> MatchedScores:
    runs = [*one.values(), *two.values()]
    common = _in_all(runs)
    if not common:
        raise UserError("no held-out problem was answered by all runs: nothing can be compared problem by problem")
    tables = [np.array([[run[problem] for problem in common] for run in arm.values()]) for arm in (one, two)]
    return MatchedScores(tables[0], tables[1], len(set().union(*runs)) - len(common))


@dataclass(frozen=True)
class ComparedRun:
    """One run of an arm.

    Attributes:
        answers: to its held-out problems.
        rows, evaluations: of its metrics.jsonl.
        summary, environment: None where there is no such file.
        completions: the completions that it kept.
        sampling_settings: how the answers were sampled, as `rlvr-vocab evaluate` wrote it down; None where it did not.
        from_evaluate: whether the answers are those of that command.
        before_training: whether the answers are those of the model that it began with.
        selects_best: whether it kept its best checkpoint instead of the last.
        grader: what graded the answers, as `GraderSpec.record` writes it; None where the run did not write it down.
        damage: a sentence on each file of it that is lost or changed.
        copies_mean: the verdict of its probe; None where nobody has asked.
    """

    folder: str
    seed: Hashable
    answers: Sequence[ProblemResult]
    rows: Sequence[Row] = ()
    evaluations: Sequence[Row] = ()
    summary: Row | None = None
    environment: Row | None = None
    completions: CompletionFiles | None = None
    sampling_settings: Row | None = None
    from_evaluate: bool = False
    before_training: bool = False
    selects_best: bool = False
    grader: GraderRecord | None = None
    damage: Sequence[str] = ()
    copies_mean: str | None = None

    @property
    def results(self) -> RunResults:
        """What each answer is worth; those without a score are left out."""
        graded = [(problem_of(answer), answer.value) for answer in self.answers]
        known = [(problem, value) for problem, value in graded if value is not None]
        return RunResults(self.seed, [problem for problem, _ in known], [value for _, value in known])

    @property
    def steps(self) -> int | None:
        """Optimisation steps that it took."""
        if self.summary is not None and self.summary.get("steps") is not None:
            return int(self.summary["steps"])
        return int(self.rows[-1]["step"]) if self.rows else None

    @property
    def logged_steps(self) -> list[int]:
        """The steps whose completions it kept."""
        return [] if self.completions is None else self.completions.steps

    def prompts_at(self, step: int) -> list[str]:
        """The prompts of a step, in their order; raises UserError where its file cannot be read."""
        assert self.completions is not None
        table = self.completions.table(step, ["prompt"])
        return [prompt for column in table.columns for prompt in column.to_pylist()]

    def last(self, metric: str) -> float | None:
        """The last logged value."""
        return next((row[metric] for row in reversed(self.rows) if row.get(metric) is not None), None)


@dataclass(frozen=True)
class ComparedArm:
    """The runs of one arm; `value` is that of the key under test."""

    name: str
    value: Any
    runs: tuple[ComparedRun, ...]

    @property
    def results(self) -> ArmResults:
        return ArmResults(self.name, [run.results for run in self.runs])


@dataclass(frozen=True)
class KeyDifference:
    """A configuration key in which runs differ; `values` are those of each run, in the order of the arms."""

    key: str
    values: tuple[str, ...]


def problem_of(answer: ProblemResult) -> tuple[str, str | None]:
    """Identity of the problem of an answer: its text and gold answer, not its place in a file."""
    return answer.prompt, cell_text(answer.solution)


def measure_of(runs: Sequence[ComparedRun]) -> HeldOutMetric:
    """What the runs, which must all be graded alike, are compared by.

    Raises:
        UserError: they were graded by different graders.
    """
    first = next((run for run in runs if run.grader is not None), runs[0])
    for run in runs:
        if not same_grader(first.grader, run.grader):
            one, other = (grader_text(each.grader) for each in (first, run))
            raise UserError(
                f"runs: the answers of {first.folder} were graded by {one}, those of {run.folder} by {other}: such "
                "figures cannot be compared; grade both alike, with rlvr-vocab evaluate checkpoint=… grader=…, and "
                "give evaluation=<name>"
            )
    return HeldOutMetric.of(first.grader)


def safe_line(text: str) -> str:
    """Text from a run without secrets, and with what a terminal would hide or obey made visible."""
    return visible_text(without_secrets(text))


def runs_with_equal_seeds(one: ComparedArm, two: ComparedArm) -> Iterator[tuple[ComparedRun, ComparedRun]]:
    """Runs of two arms that have the same seed."""
    by_seed = {run.seed: run for run in two.runs}
    yield from ((run, by_seed[run.seed]) for run in one.runs if run.seed in by_seed)
