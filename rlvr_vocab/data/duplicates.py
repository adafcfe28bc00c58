"""Problems that stand in a set more than once, and problems of one set that occur in another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.data.problem_key import key_of, numbers_in, words_of
from rlvr_vocab.data.rows import Problem
from rlvr_vocab.text import short_text
from rlvr_vocab.verify import verify

# A column that holds one text in all rows is no column of problems; its answers need not all be compared.
MOST_COMPARED = 20

Shingle = tuple[str, ...]
# A shingle is a run of this many words; in a problem of fewer than LONG words, a shorter run.
SHINGLE, SHORT_SHINGLE, LONG = 8, 5, 16
# With fewer shingles a problem cannot be told from a turn of phrase; so many has one of eight words.
FEWEST_SHINGLES = 4
# A shingle in more problems than this, and in more than this share of them, belongs to no problem: "Remember to box
# your answer", or "where m and n are relatively prime positive integers".
COMMON, COMMON_SHARE = 5, 0.1
NEARLY = 0.8
PROBLEMS_BETWEEN_REPORTS = 500


@dataclass(frozen=True)
class RepeatedProblem:
    """One problem that stands in several rows.

    Args:
        text: As its first row has it.
        row_numbers: All of its rows, from 1, in the order of the file.
        answers: The answers that differ from one another, as text, each with the first row that gives it.
    """

    text: str
    row_numbers: tuple[int, ...]
    answers: tuple[tuple[int, str], ...]

    @property
    def is_contradiction(self) -> bool:
        """Whether at least one of the answers must be wrong."""
        return len(self.answers) > 1


def repeated_problems(problems: Sequence[Problem]) -> list[RepeatedProblem]:
    """The problems that occur more than once, whatever their writing, in the order of the file.

    Of up to `MOST_COMPARED` answers to one problem the verifier decides which are equal; beyond, their texts do.
    """
    groups: dict[str, list[Problem]] = {}
    for problem in problems:
        groups.setdefault(problem.key, []).append(problem)
    repeated = [(group, _answers(group)) for group in groups.values() if len(group) > 1]
    pairs: dict[tuple[str, str], bool] = {}
    for _, answers in repeated:
        pairs.update(dict.fromkeys(combinations(list(answers)[:MOST_COMPARED], 2), False))
    there = verify([one for one, _ in pairs], [other for _, other in pairs])
    back = verify([other for _, other in pairs], [one for one, _ in pairs])
    equal = {pair for pair, *verdicts in zip(pairs, there, back, strict=True) if any(each.correct for each in verdicts)}
    found = []
    for group, answers in repeated:
        different: dict[str, int] = {}
        for answer, row_number in answers.items():
            if not any((known, answer) in equal for known in different):
                different[answer] = row_number
        found.append(
            RepeatedProblem(
                text=group[0].text,
                row_numbers=tuple(problem.row_number for problem in group),
                answers=tuple((row_number, answer) for answer, row_number in different.items()),
            )
        )
    return found


def _answers(group: Sequence[Problem]) -> dict[str, int]:
    """Each answer as text, with the number of the first row that has it."""
    answers: dict[str, int] = {}
    for problem in group:
        text = cell_text(problem.solution)
        if text is not None:
            answers.setdefault(text, problem.row_number)
    return answers


@dataclass(frozen=True)
class SharedProblem:
    """A measured problem, and the one in training that is most like it, by their row numbers and shortened texts.

    Args:
        contained: Share of the measured problem's shingles that the other one holds; 1 where the problems are the same.
        same: Whether they are the same problem.
        same_numbers: Whether both contain the same numbers; where not, they are often two problems of one kind.
    """

    row_number: int
    train_row_number: int
    contained: float
    same: bool
    same_numbers: bool
    text: str
    train_text: str


@dataclass(frozen=True)
class Overlap:
    """`shared` holds the closest match of each measured problem that has any; `train_matches` counts the trained
    problems that match one with the same numbers."""

    num_measured: int
    num_trained: int
    train_matches: int
    shared: tuple[SharedProblem, ...]


def find_overlap(
    trained: Sequence[Problem],
    measured: Sequence[Problem],
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Overlap:
    """Look for every measured problem among the trained ones.

    Two problems are the same where their keys are equal, and nearly the same where one trained problem holds at least
    `NEARLY` of the measured problem's shingles, apart from those that many measured problems have.
    """
    words = [words_of(problem.text) for problem in measured]
    same_key: dict[str, list[int]] = {}
    for index, each in enumerate(words):
        same_key.setdefault(key_of(each), []).append(index)
    shingles = own_shingles(words)
    holders: dict[Shingle, list[int]] = {}
    for index, own in enumerate(shingles):
        for shingle in own:
            holders.setdefault(shingle, []).append(index)

    # Of each measured problem that is found: how close (same, same numbers, share of shingles), and where in training.
    best: dict[int, tuple[tuple[bool, bool, float], int]] = {}
    train_matches = 0
    for position, problem in enumerate(trained):
        train_words = words_of(problem.text)
        numbers, same = numbers_in(train_words), same_key.get(key_of(train_words), [])
        held = {run for length in (SHINGLE, SHORT_SHINGLE) for run in runs_of(train_words, length)}
        counts = Counter(index for shingle in holders.keys() & held for index in holders[shingle])
        shares = {index: count / len(shingles[index]) for index, count in sorted(counts.items())}
        found = dict.fromkeys(same, (True, True, 1.0))
        for index, share in shares.items():
            if share >= NEARLY and index not in found:
                found[index] = (False, numbers == numbers_in(words[index]), share)
        for index, closeness in found.items():
            if index not in best or closeness > best[index][0]:
                best[index] = closeness, position
        train_matches += any(same_numbers for _, same_numbers, _ in found.values())
        if (position + 1) % PROBLEMS_BETWEEN_REPORTS == 0 or position + 1 == len(trained):
            on_progress(position + 1, len(trained))
    shared = [
        SharedProblem(
            row_number=measured[index].row_number,
            train_row_number=trained[position].row_number,
            contained=contained,
            same=same_problem,
            same_numbers=same_numbers,
            text=short_text(measured[index].text),
            train_text=short_text(trained[position].text),
        )
        for index, ((same_problem, same_numbers, contained), position) in sorted(best.items())
    ]
    return Overlap(len(measured), len(trained), train_matches, tuple(shared))


def runs_of(words: Sequence[str], length: int) -> list[Shingle]:
    """The runs of `length` words, by where they begin."""
    return list(zip(*(words[start:] for start in range(length)), strict=False))


def own_shingles(problems: Sequence[Sequence[str]]) -> list[set[Shingle]]:
    """The shingles of each problem that share no word with one common to many; empty for a problem with too few."""
    runs = [runs_of(words, SHINGLE if len(words) >= LONG else SHORT_SHINGLE) for words in problems]
    frequencies = Counter(run for each in runs for run in set(each))
    most = max(COMMON, COMMON_SHARE * len(problems))
    own = []
    for each in runs:
        length = len(each[0]) if each else 0
        common = {start for start, run in enumerate(each) if frequencies[run] > most}
        kept = {run for start, run in enumerate(each) if common.isdisjoint(range(start - length + 1, start + length))}
        own.append(kept if len(kept) >= FEWEST_SHINGLES else set())
    return own
