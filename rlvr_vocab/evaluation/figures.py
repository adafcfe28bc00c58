"""What the results of one checkpoint come to: figures with intervals over problems."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlvr_vocab.record.results import ProblemResult
from rlvr_vocab.statistics import (
    Interval,
    difference_interval,
    majority_share,
    mean_interval,
    passes_at_k,
    ratio_interval,
    share_interval,
    usual_ks,
)


@dataclass(frozen=True)
class EvaluationFigures:
    """The figures of one checkpoint.

    Attributes:
        intervals: by name: `avg@k`, `pass@1` … `pass@k`, `maj@k`, `length`, `thinking_length`, `cut_off`, `finished`,
            `closed_thinking`, `answered`, `format`, `reasoning_share`; one that nothing can be said of is not there.
        per_problem: of `avg@k` and `maj@k`, the value of each problem by its number, for pairing with another
            checkpoint.
        scored: how many of the answers to each problem have a score.
    """

    intervals: dict[str, Interval]
    per_problem: dict[str, dict[int, float]]
    scored: dict[int, int]


def evaluation_figures(results: Sequence[ProblemResult], votes: Sequence[int | None]) -> EvaluationFigures:
    """Figures of all samples of all problems; answers without a score count for no accuracy.

    Args:
        votes: what `votes_of` says of the results.
    """
    samples = 1 + max((result.sample for result in results), default=0)
    scored = _by_problem(results, votes, lambda result: result.score is not None)
    averages = {number: sum(r.right for r, _ in group) / len(group) for number, group in scored.items()}
    majorities = {
        number: majority_share([vote for _, vote in group], [r.right for r, _ in group])
        for number, group in scored.items()
    }
    count = sum(map(len, scored.values()))
    found = {
        f"avg@{samples}": share_interval([*averages.values()], count),
        **_passes(list(scored.values()), samples),
        f"maj@{samples}": share_interval([*majorities.values()], count),
        **_form(results),
    }
    return EvaluationFigures(
        {name: interval for name, interval in found.items() if interval is not None},
        {f"avg@{samples}": averages, f"maj@{samples}": majorities},
        {number: len(group) for number, group in scored.items()},
    )


def paired_differences(figures: EvaluationFigures, first: EvaluationFigures) -> dict[str, Interval]:
    """How much more a checkpoint has of what the first one has, over the problems that both were scored on.

    Their samples are those of both.
    """
    found = {}
    for name in figures.per_problem.keys() & first.per_problem.keys():
        mine, theirs = figures.per_problem[name], first.per_problem[name]
        both = [problem for problem in mine if problem in theirs]
        samples = sum(figures.scored[problem] + first.scored[problem] for problem in both)
        found[name] = difference_interval([mine[problem] - theirs[problem] for problem in both], samples)
    return {name: interval for name, interval in sorted(found.items()) if interval is not None}


_Group = list[tuple[ProblemResult, int | None]]


def _by_problem(
    results: Sequence[ProblemResult], votes: Sequence[int | None], included: Callable[[ProblemResult], bool]
) -> dict[int, _Group]:
    groups: dict[int, _Group] = defaultdict(list)
    for result, vote in zip(results, votes, strict=True):
        if included(result):
            groups[result.problem].append((result, vote))
    return groups


def _passes(groups: Sequence[_Group], samples: int) -> dict[str, Interval | None]:
    """pass@k over the problems that have k scored samples."""
    right = [sum(result.right for result, _ in group) for group in groups]
    sizes = [len(group) for group in groups]
    return {
        f"pass@{k}": share_interval(passes_at_k(sizes, right, k), sum(size for size in sizes if size >= k))
        for k in usual_ks(samples)
    }


def _form(results: Sequence[ProblemResult]) -> dict[str, Interval | None]:
    """Length and format, which need no gold answer."""
    problems: dict[int, list[ProblemResult]] = defaultdict(list)
    for result in results:
        problems[result.problem].append(result)

    def means(value: Callable[[ProblemResult], float]) -> list[float]:
        return [sum(map(value, group)) / len(group) for group in problems.values()]

    def totals(value: Callable[[ProblemResult], float]) -> list[float]:
        return [sum(map(value, group)) for group in problems.values()]

    shares: dict[str, Callable[[ProblemResult], float]] = {
        "cut_off": lambda result: not result.finished,
        "finished": lambda result: result.finished,
        "closed_thinking": lambda result: result.closed,
        "answered": lambda result: result.answer is not None,
        "format": lambda result: result.closed and result.finished and result.answer is not None,
    }
    if not all(result.answer_read for result in results):
        del shares["answered"], shares["format"]
    return {
        "length": mean_interval(means(lambda result: result.tokens), len(results), least=0),
        "thinking_length": mean_interval(means(lambda result: result.thinking_tokens), len(results), least=0),
        **{name: share_interval(means(value), len(results)) for name, value in shares.items()},
        "reasoning_share": ratio_interval(
            totals(lambda result: result.reasoning_tokens),
            totals(lambda result: result.thinking_tokens),
            len(results),
            ends=(0, 1),
        ),
    }
