"""Problems that stand in a set more than once, and problems of one set that occur in another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.data.problem_key import key_of, numbers_in, words_of
from rlvr_vocab.data.rows import Problem
from rlvr_vocab.verify import verify

Shingle = tuple[str, ...]  # a run of this many words; in a problem of fewer than LONG words, a shorter run
SHINGLE, SHORT_SHINGLE, LONG = 8, 5, 16
FEWEST_SHINGLES = 4  # fewer may be a turn of phrase
# A shingle in more problems than this, and in more than this share of them, belongs to no problem: "Remember to box
# your answer", or "where m and n are relatively prime positive integers".
COMMON, COMMON_SHARE = 5, 0.1
NEARLY = 0.8
PROBLEMS_BETWEEN_REPORTS = 500


@dataclass(frozen=True)
class RepeatedProblem:
    """One problem in several rows, in the order of the file; `answers` are the first rows of those that differ."""

    rows: tuple[Problem, ...]
    answers: tuple[Problem, ...]


def repeated_problems(problems: Sequence[Problem]) -> list[RepeatedProblem]:
    """The problems that occur more than once, in any writing, in the order of the file.

    By the verifier, an answer differs from the first one where neither counts as right for the other.
    """
    groups: dict[str, list[Problem]] = {}
    for problem in problems:
        groups.setdefault(problem.key, []).append(problem)
    repeated = [group for group in groups.values() if len(group) > 1]
    answers: list[dict[str, Problem]] = [{} for _ in repeated]  # of each: the first row that has it
    for group, of_group in zip(repeated, answers, strict=True):
        for problem in group:
            if (text := cell_text(problem.solution)) is not None:
                of_group.setdefault(text, problem)
    pairs = [(first, other) for first, *others in filter(None, answers) for other in others]
    ones, others = [one for one, _ in pairs], [other for _, other in pairs]
    verdicts = zip(pairs, verify(ones, others), verify(others, ones), strict=True)
    equal = {pair for pair, there, back in verdicts if there.correct or back.correct}
    found = []
    for group, of_group in zip(repeated, answers, strict=True):
        first = next(iter(of_group), "")
        different = (problem for text, problem in of_group.items() if (first, text) not in equal)
        found.append(RepeatedProblem(tuple(group), tuple(different)))
    return found


@dataclass(frozen=True)
class SharedProblem:
    """A measured problem, the one in training that is most like it, and the share of its shingles that this holds."""

    measured: Problem
    trained: Problem
    contained: float


def find_overlap(
    trained: Sequence[Problem],
    measured: Sequence[Problem],
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[list[SharedProblem], int]:
    """Look for every measured problem among the trained ones.

    Two problems are the same where their keys are equal, and nearly the same where they have the same numbers and the
    trained one holds at least `NEARLY` of the measured one's shingles.

    Returns:
        the closest match of each measured problem that has any, and the number of trained problems that match one.
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

    best: dict[int, tuple[bool, float, int]] = {}  # the same?, share of shingles, place in training
    matches = 0
    for position, problem in enumerate(trained):
        train_words = words_of(problem.text)
        numbers = numbers_in(train_words)
        held = {run for length in (SHINGLE, SHORT_SHINGLE) for run in runs_of(train_words, length)}
        counts = Counter(index for shingle in holders.keys() & held for index in holders[shingle])
        shares = {index: count / len(shingles[index]) for index, count in sorted(counts.items())}
        found = {
            index: (False, share)
            for index, share in shares.items()
            if share >= NEARLY and numbers == numbers_in(words[index])
        }
        found |= dict.fromkeys(same_key.get(key_of(train_words), []), (True, 1.0))
        for index, closeness in found.items():
            if index not in best or closeness > best[index][:2]:
                best[index] = (*closeness, position)
        matches += bool(found)
        if (position + 1) % PROBLEMS_BETWEEN_REPORTS == 0 or position + 1 == len(trained):
            on_progress(position + 1, len(trained))
    shared = [
        SharedProblem(measured[index], trained[position], share) for index, (_, share, position) in sorted(best.items())
    ]
    return shared, matches


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
