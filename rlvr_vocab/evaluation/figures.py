"""Figures of the results of one checkpoint, with intervals over problems; majority votes by the verifier."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from rlvr_vocab.record.results import ProblemResult, ValueOf, problem_means
from rlvr_vocab.rewards.reward import ERRORS, assistant_turns
from rlvr_vocab.statistics import (
    Interval,
    majority_share,
    mean_interval,
    passes_at_k,
    ratio_interval,
    share_interval,
    usual_ks,
)
from rlvr_vocab.verify import verify


def evaluation_figures(results: Sequence[ProblemResult], votes: Sequence[int | None]) -> dict[str, Interval]:
    """Figures of all samples by name; `votes` are of `votes_of`. Answers without a score count for no accuracy."""
    samples = 1 + max((result.sample for result in results), default=0)
    judged: dict[int, list[tuple[ProblemResult, int | None]]] = defaultdict(list)
    for result, vote in zip(results, votes, strict=True):
        if result.right is not None:
            judged[result.problem].append((result, vote))
    averages = problem_means(results, lambda result: result.right)
    scores = problem_means(results, lambda result: result.score)
    scored = sum(result.score is not None for result in results)
    found = {f"avg@{samples}": share_interval([*averages.values()], scored)}
    if all(result.answer_read for result in results):
        shares = [
            majority_share([vote for _, vote in group], [bool(result.right) for result, _ in group])
            for group in judged.values()
        ]
        found[f"maj@{samples}"] = share_interval(shares, scored)
    right = [sum(bool(result.right) for result, _ in group) for group in judged.values()]
    sizes = [len(group) for group in judged.values()]
    for k in usual_ks(samples):  # over the problems that have k scored samples
        count = sum(size for size in sizes if size >= k)
        found[f"pass@{k}"] = share_interval(passes_at_k(sizes, right, k), count)
    if scores != averages:
        found["score"] = mean_interval([*scores.values()], scored)
    for name in dict.fromkeys(name for result in results for name in result.rewards):
        found[f"rewards/{name}"] = _mean(results, _reward(name))
    found |= _length_and_format(results)
    return {name: interval for name, interval in found.items() if interval is not None}


def figures_by_task(results: Sequence[ProblemResult], votes: Sequence[int | None]) -> dict[str, dict[str, Interval]]:
    """The figures of each task; empty where the problems have none."""
    found = {}
    for task in sorted({result.task for result in results} - {""}):
        own = [pair for pair in zip(results, votes, strict=True) if pair[0].task == task]
        found[task] = evaluation_figures([result for result, _ in own], [vote for _, vote in own])
    return found


def _reward(name: str) -> ValueOf:
    return lambda result: result.rewards.get(name)


def _mean(results: Sequence[ProblemResult], value_of: ValueOf, least: float = -math.inf) -> Interval | None:
    return mean_interval([*problem_means(results, value_of).values()], len(results), least)


def _share(results: Sequence[ProblemResult], value_of: ValueOf) -> Interval | None:
    return share_interval([*problem_means(results, value_of).values()], len(results))


def format_of(results: Sequence[ProblemResult]) -> ValueOf:
    """Whether an answer is in format: by the run's format reward, else by its thinking.

    Where at least half of the answers think, one in format has closed its thinking, ended by itself and, where
    answers are read, holds one. Where fewer think, it is None.
    """
    if any(result.in_format is not None for result in results):
        return lambda result: result.in_format
    if 2 * sum(result.thinking_tokens > 0 for result in results) < len(results):
        return lambda result: None
    return lambda result: result.closed and result.finished and (result.answer is not None or not result.answer_read)


def _length_and_format(results: Sequence[ProblemResult]) -> dict[str, Interval | None]:
    """Length and format, which need no gold answer."""
    thinks, answers_read = any(each.thinking_tokens for each in results), all(each.answer_read for each in results)
    thinking = problem_means(results, lambda result: result.thinking_tokens).values()
    reasoning = problem_means(results, lambda result: result.reasoning_tokens).values()
    share = ratio_interval([*reasoning], [*thinking], len(results), ends=(0, 1)) if any(reasoning) else None
    return {
        "length": _mean(results, lambda result: result.tokens, least=0),
        "thinking_length": _mean(results, lambda result: result.thinking_tokens, least=0),
        "cut_off": _share(results, lambda result: not result.finished),
        "closed_thinking": _share(results, lambda result: result.closed) if thinks else None,
        "answered": _share(results, lambda result: result.answer is not None) if answers_read else None,
        "format": _share(results, format_of(results)),
        "reasoning_share": share,
        **_of_tools(results),
    }


def _of_tools(results: Sequence[ProblemResult]) -> dict[str, Interval | None]:
    """Calls per answer, the share of them that gave an error, and of the answers that ended in a call."""
    if not any(result.messages for result in results):
        return {}

    def calls(result: ProblemResult) -> int:
        return sum(len(turn.calls) for turn in assistant_turns(result.messages))

    def errors(result: ProblemResult) -> int:
        return sum(text.startswith(ERRORS) for turn in assistant_turns(result.messages) for text in turn.results)

    made, failed = ([*problem_means(results, count).values()] for count in (calls, errors))
    return {
        "calls": _mean(results, calls, least=0),
        "failed_calls": ratio_interval(failed, made, len(results), ends=(0, 1)) if any(made) else None,
        "ended_in_call": _share(results, lambda result: assistant_turns(result.messages)[-1].ended_in_call),
    }


def equal_by_verifier(pairs: Sequence[tuple[str, str]]) -> list[bool]:
    """Equal in value, as an answer is to a gold answer; one that cannot be read equals only the same text."""
    verdicts = verify([gold for gold, _ in pairs], [answer for _, answer in pairs])
    return [verdict.correct is True for verdict in verdicts]


def votes_of(results: Sequence[ProblemResult]) -> list[int | None]:
    """The number of each result's answer in its problem: 0 for right ones, the same for equal ones; None for none."""
    texts: dict[int, list[str]] = defaultdict(list)
    for result in results:
        own = texts[result.problem]
        if not result.right and result.answer is not None and result.answer not in own:
            own.append(result.answer)
    pairs = [(first, text) for own in texts.values() for place, text in enumerate(own) for first in own[:place]]
    verdicts = iter(equal_by_verifier(pairs))
    numbers: dict[tuple[int, str], int] = {}
    for problem, own in texts.items():
        firsts: list[str] = []
        for place, text in enumerate(own):
            same = [first for first in own[:place] if next(verdicts) and first in firsts]
            firsts += [] if same else [text]
            numbers[problem, text] = 1 + firsts.index(same[0] if same else text)
    return [
        0 if result.right else None if result.answer is None else numbers[result.problem, result.answer]
        for result in results
    ]
