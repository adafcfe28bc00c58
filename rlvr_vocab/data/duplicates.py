"""Problems that stand in a set more than once, and those whose answers then contradict each other."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.data.rows import Problem

Pair = tuple[str, str]
# Of each pair of answers, whether they mean the same; asked once for all pairs.
SameAnswers = Callable[[Sequence[Pair]], Sequence[bool]]
# A column that holds one text in all rows is no column of problems; its answers need not all be compared.
MOST_COMPARED = 20


@dataclass(frozen=True)
class RepeatedProblem:
    """One problem that stands in several rows.

    Args:
        text: As its first row has it.
        row_numbers: All of its rows, from 1, in the order of the file.
        answers: The answers that differ from one another, as text, each with the first row that gives it.
        verbatim: Whether the rows agree in everything but white space.
    """

    text: str
    row_numbers: tuple[int, ...]
    answers: tuple[tuple[int, str], ...]
    verbatim: bool

    @property
    def is_contradiction(self) -> bool:
        """Whether at least one of the answers must be wrong."""
        return len(self.answers) > 1


def repeated_problems(problems: Sequence[Problem], same_answers: SameAnswers) -> list[RepeatedProblem]:
    """The problems that occur more than once, whatever their writing.

    Args:
        problems: In the order of the file.
        same_answers: Whether answers that are written differently mean the same; asked for up to `MOST_COMPARED`
            answers to one problem, beyond which their texts decide.
    """
    groups: dict[str, list[Problem]] = {}
    for problem in problems:
        groups.setdefault(problem.key, []).append(problem)
    repeated = [group for group in groups.values() if len(group) > 1]
    pairs = list(dict.fromkeys(pair for group in repeated for pair in pairs_to_compare(group)))
    same = dict(zip(pairs, same_answers(pairs), strict=True))
    return [repeated_problem(group, same) for group in repeated]


def pairs_to_compare(group: Sequence[Problem]) -> list[Pair]:
    different = list(dict.fromkeys(answer for _, answer in _answers(group)))
    return list(combinations(different[:MOST_COMPARED], 2))


def repeated_problem(group: Sequence[Problem], same: Mapping[Pair, bool]) -> RepeatedProblem:
    answers: dict[str, int] = {}
    for row_number, answer in _answers(group):
        if answer not in answers and not any(same.get((known, answer)) for known in answers):
            answers[answer] = row_number
    return RepeatedProblem(
        text=group[0].text,
        row_numbers=tuple(problem.row_number for problem in group),
        answers=tuple((row_number, answer) for answer, row_number in answers.items()),
        verbatim=len({tuple(problem.text.split()) for problem in group}) == 1,
    )


def _answers(group: Sequence[Problem]) -> list[tuple[int, str]]:
    """The number and the answer as text of each row that has one."""
    texts = ((problem.row_number, cell_text(problem.solution)) for problem in group)
    return [(row_number, answer) for row_number, answer in texts if answer is not None]
