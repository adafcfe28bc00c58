"""What the results of one checkpoint come to: figures with intervals over problems."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from rlvr_vocab.record.results import ProblemResult, ValueOf, problem_means
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
        intervals: by name: `avg@k`, `pass@1` … `pass@k`, `maj@k`, `score`, `rewards/<name>`, `length`,
            `thinking_length`, `cut_off`, `finished`, `closed_thinking`, `answered`, `format`, `reasoning_share`; one
            that nothing can be said of is not there.
        per_problem: of `avg@k`, `maj@k` and `score`, the value of each problem by its number, for pairing with another
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
    judged = _by_problem(results, votes)
    averages = problem_means(results, lambda result: result.right)
    scores = problem_means(results, lambda result: result.score)
    scored = Counter(result.problem for result in results if result.score is not None)
    count = scored.total()
    per_problem = {f"avg@{samples}": averages}
    if all(result.answer_read for result in results):
        per_problem[f"maj@{samples}"] = {
            number: majority_share([vote for _, vote in group], [bool(result.right) for result, _ in group])
            for number, group in judged.items()
        }
    found = {name: share_interval([*values.values()], count) for name, values in per_problem.items()}
    found |= _passes(list(judged.values()), samples)
    if scores != averages:
        per_problem["score"] = scores
        found["score"] = mean_interval([*scores.values()], count)
    found |= {**_single_rewards(results), **_form(results)}
    return EvaluationFigures(
        {name: interval for name, interval in found.items() if interval is not None},
        per_problem,
        dict(scored),
    )


def figures_by_task(results: Sequence[ProblemResult], votes: Sequence[int | None]) -> dict[str, EvaluationFigures]:
    """The figures of each task by itself; none where the problems have no tasks."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, result in enumerate(results):
        places[result.task].append(place)
    return {
        task: evaluation_figures([results[place] for place in places[task]], [votes[place] for place in places[task]])
        for task in sorted(places)
        if task
    }


def paired_differences(figures: EvaluationFigures, first: EvaluationFigures) -> dict[str, Interval]:
    """How much more a checkpoint has of what the first one has, over the problems that both were scored on.

    Their samples are those of both.
    """
    found = {}
    for name in figures.per_problem.keys() & first.per_problem.keys():
        mine, theirs = figures.per_problem[name], first.per_problem[name]
        both = [problem for problem in mine if problem in theirs]
        samples = sum(figures.scored[problem] + first.scored[problem] for problem in both)
        interval = mean_interval if name == "score" else difference_interval
        found[name] = interval([mine[problem] - theirs[problem] for problem in both], samples)
    return {name: interval for name, interval in sorted(found.items()) if interval is not None}


_Group = list[tuple[ProblemResult, int | None]]


def _by_problem(results: Sequence[ProblemResult], votes: Sequence[int | None]) -> dict[int, _Group]:
    """The answers to each problem that are right or wrong."""
    groups: dict[int, _Group] = defaultdict(list)
    for result, vote in zip(results, votes, strict=True):
        if result.right is not None:
            groups[result.problem].append((result, vote))
    return groups


def _single_rewards(results: Sequence[ProblemResult]) -> dict[str, Interval | None]:
    """Each of the rewards that the score is the sum of."""

    def score_by(name: str) -> ValueOf:
        return lambda result: result.rewards.get(name)

    names = dict.fromkeys(name for result in results for name in result.rewards)
    return {f"rewards/{name}": _mean(results, score_by(name)) for name in names}


def _mean(results: Sequence[ProblemResult], value_of: ValueOf, least: float = -math.inf) -> Interval | None:
    return mean_interval([*problem_means(results, value_of).values()], len(results), least)


def _share(results: Sequence[ProblemResult], value_of: ValueOf) -> Interval | None:
    return share_interval([*problem_means(results, value_of).values()], len(results))


def _passes(groups: Sequence[_Group], samples: int) -> dict[str, Interval | None]:
    """pass@k over the problems that have k scored samples."""
    right = [sum(bool(result.right) for result, _ in group) for group in groups]
    sizes = [len(group) for group in groups]
    return {
        f"pass@{k}": share_interval(passes_at_k(sizes, right, k), sum(size for size in sizes if size >= k))
        for k in usual_ks(samples)
    }


def format_of(results: Sequence[ProblemResult]) -> ValueOf:
    """What tells whether an answer among these is in format: the run's own format reward, else the thinking.

    Where at least half of the answers think, one is in format that has closed its thinking, ended by itself and, where
    answers are read, holds one. Where fewer think, and no reward looks at the form, nothing tells (None).
    """
    if any(result.in_format is not None for result in results):
        return lambda result: result.in_format
    if 2 * sum(result.thinking_tokens > 0 for result in results) < len(results):
        return lambda result: None
    return lambda result: result.closed and result.finished and (result.answer is not None or not result.answer_read)


def _form(results: Sequence[ProblemResult]) -> dict[str, Interval | None]:
    """Length and format, which need no gold answer."""
    thinks, answers_read = any(each.thinking_tokens for each in results), all(each.answer_read for each in results)
    shares: dict[str, ValueOf] = {
        "cut_off": lambda result: not result.finished,
        "finished": lambda result: result.finished,
        "closed_thinking": lambda result: result.closed if thinks else None,
        "answered": lambda result: result.answer is not None if answers_read else None,
        "format": format_of(results),
    }
    thinking, reasoning = (
        [*problem_means(results, value_of).values()]
        for value_of in (lambda result: result.thinking_tokens, lambda result: result.reasoning_tokens)
    )
    return {
        "length": _mean(results, lambda result: result.tokens, least=0),
        "thinking_length": _mean(results, lambda result: result.thinking_tokens, least=0),
        **{name: _share(results, value_of) for name, value_of in shares.items()},
        "reasoning_share": ratio_interval(reasoning, thinking, len(results), ends=(0, 1)) if any(reasoning) else None,
    }
