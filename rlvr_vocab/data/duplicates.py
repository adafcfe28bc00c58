"""Finds problems that occur more than once in a set, and problems of one set that occur in another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.data.rows import Problem
from rlvr_vocab.verify import verify


@dataclass(frozen=True)
class RepeatedProblem:
    """One problem in several rows, in file order; `answers` has the first row of each different answer."""

    rows: tuple[Problem, ...]
    answers: tuple[Problem, ...]


def repeated_problems(problems: Sequence[Problem]) -> list[RepeatedProblem]:
    """The problems that occur more than once, in any spelling, in file order.

    An answer differs from the first one if the verifier accepts neither as an answer to the other.
    """
    repeated = [group for group in _by_key(problems).values() if len(group) > 1]
    first_rows: list[dict[str, Problem]] = [{} for _ in repeated]  # of each: the first row of each answer
    for group, rows in zip(repeated, first_rows, strict=True):
        for problem in group:
            if (text := cell_text(problem.solution)) is not None:
                rows.setdefault(text, problem)
    pairs = [(first, other) for first, *others in filter(None, first_rows) for other in others]
    ones, others = [one for one, _ in pairs], [other for _, other in pairs]
    verdicts = zip(pairs, verify(ones, others), verify(others, ones), strict=True)
    equal = {pair for pair, there, back in verdicts if there.correct or back.correct}
    found = []
    for group, rows in zip(repeated, first_rows, strict=True):
        different = [problem for text, problem in rows.items() if (next(iter(rows)), text) not in equal]
        found.append(RepeatedProblem(tuple(group), tuple(different)))
    return found


def shared_problems(trained: Sequence[Problem], measured: Sequence[Problem]) -> list[tuple[Problem, list[Problem]]]:
    """The measured problems that occur in training in any spelling, each with its training rows."""
    by_key = _by_key(trained)
    return [(problem, by_key[problem.key]) for problem in measured if problem.key in by_key]


def _by_key(problems: Sequence[Problem]) -> dict[str, list[Problem]]:
    groups: dict[str, list[Problem]] = {}
    for problem in problems:
        groups.setdefault(problem.key, []).append(problem)
    return groups
