"""Which problems of one set occur in another, whose text alone is read: the same ones, and nearly the same."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rlvr_vocab.data.answers import UnusableRow
from rlvr_vocab.data.files import local_file, read_rows
from rlvr_vocab.data.load import named_rows
from rlvr_vocab.data.rows import column_names, read_problem, require_column
from rlvr_vocab.data.wording import key_of, numbers_in, words_of
from rlvr_vocab.errors import UserError

Words = tuple[str, ...]
Shingle = tuple[str, ...]

# A shingle is a run of this many words; in a problem of fewer than LONG words, a shorter run.
SHINGLE, SHORT_SHINGLE = 8, 5
LONG = 16
# With fewer shingles a problem cannot be told from a turn of phrase; so many has one of eight words.
FEWEST_SHINGLES = 4
# A shingle in more problems than this, and in more than this share of them, belongs to no problem: "Remember to box
# your answer", or "where m and n are relatively prime positive integers".
COMMON, COMMON_SHARE = 5, 0.1
NEARLY = 0.8
PROBLEMS_BETWEEN_REPORTS = 500


@dataclass(frozen=True)
class Match:
    """A problem of the measured set, and the one in training that is most like it; both by their index.

    Args:
        contained: Share of the measured problem's shingles that the other one holds; 1 where the problems are the same.
        same: Whether they are the same problem.
        same_numbers: Whether both name the same numbers; where not, they are often two problems of one kind.
    """

    measured: int
    trained: int
    contained: float
    same: bool
    same_numbers: bool


@dataclass(frozen=True)
class Overlap:
    """`matches` holds the closest match of each measured problem that has any; `trained` indexes all trained problems
    that match one with the same numbers."""

    num_measured: int
    num_trained: int
    matches: tuple[Match, ...]
    trained: tuple[int, ...]

    @property
    def same(self) -> list[Match]:
        return [match for match in self.matches if match.same]

    @property
    def nearly_same(self) -> list[Match]:
        return [match for match in self.matches if not match.same and match.same_numbers]

    @property
    def other_numbers(self) -> list[Match]:
        """What is nearly the same but for its numbers."""
        return [match for match in self.matches if not match.same_numbers]


def find_overlap(
    trained: Sequence[str],
    measured: Sequence[str],
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Overlap:
    """Look for every measured problem among the trained ones.

    Two problems are the same where their keys are (`problem_key`), and nearly the same where one trained problem
    holds at least `NEARLY` of the measured problem's shingles, apart from those that many measured problems have.
    Nothing that reaches the threshold is missed.
    """
    index = MeasuredIndex([words_of(text) for text in measured])
    best: dict[int, Match] = {}
    touched = []
    for position, text in enumerate(trained):
        found = list(index.matches(words_of(text), position))
        touched += [position] if any(match.same_numbers for match in found) else []
        for match in found:
            known = best.get(match.measured)
            if known is None or closeness(match) > closeness(known):
                best[match.measured] = match
        if (position + 1) % PROBLEMS_BETWEEN_REPORTS == 0 or position + 1 == len(trained):
            on_progress(position + 1, len(trained))
    return Overlap(len(measured), len(trained), tuple(best[key] for key in sorted(best)), tuple(touched))


def closeness(match: Match) -> tuple[bool, bool, float]:
    return match.same, match.same_numbers, match.contained


class MeasuredIndex:
    """The measured problems by what makes them the same, and by their shingles."""

    def __init__(self, measured: Sequence[Words]) -> None:
        self._words = measured
        self._same: dict[str, list[int]] = {}
        for key, words in enumerate(measured):
            self._same.setdefault(key_of(words), []).append(key)
        self._shingles = own_shingles(measured)
        self._holders: dict[Shingle, list[int]] = {}
        for key, held in self._shingles.items():
            for shingle in held:
                self._holders.setdefault(shingle, []).append(key)

    def matches(self, words: Words, position: int) -> Iterator[Match]:
        """The measured problems that a trained one is, or nearly is."""
        same = self._same.get(key_of(words), ())
        for key in same:
            yield Match(key, position, 1.0, same=True, same_numbers=True)
        held = shingles(words, SHINGLE) | shingles(words, SHORT_SHINGLE)
        shared = Counter(key for shingle in self._holders.keys() & held for key in self._holders[shingle])
        for key in sorted(shared.keys() - set(same)):
            contained = shared[key] / len(self._shingles[key])
            if contained >= NEARLY:
                same_numbers = numbers_in(words) == numbers_in(self._words[key])
                yield Match(key, position, contained, same=False, same_numbers=same_numbers)


def shingle_length(words: Words) -> int:
    return SHINGLE if len(words) >= LONG else SHORT_SHINGLE


def shingles(words: Words, length: int) -> set[Shingle]:
    """The different runs of `length` words."""
    return set(zip(*(words[start:] for start in range(length)), strict=False))


def own_shingles(measured: Sequence[Words]) -> dict[int, set[Shingle]]:
    """Of each problem the shingles outside of what is common to many; nothing of a problem that has too few."""
    held = {key: shingles(words, shingle_length(words)) for key, words in enumerate(measured)}
    most = max(COMMON, COMMON_SHARE * len(measured))
    frequencies = Counter(shingle for each in held.values() for shingle in each)
    common = {shingle for shingle, problems in frequencies.items() if problems > most}
    own = {key: shingles_outside(common, words) for key, words in enumerate(measured)}
    return {key: found for key, found in own.items() if len(found) >= FEWEST_SHINGLES}


def shingles_outside(common: set[Shingle], words: Words) -> set[Shingle]:
    """The shingles of a problem that share no word with a common one: a frame around it is no part of it."""
    length = shingle_length(words)
    runs = list(zip(*(words[start:] for start in range(length)), strict=False))
    framed = {start + offset for start, run in enumerate(runs) if run in common for offset in range(length)}
    return {run for start, run in enumerate(runs) if framed.isdisjoint(range(start, start + length))}


@dataclass(frozen=True)
class OtherSet:
    """A file, a folder or a hub name, the column of its problems, and for the last two configuration and split."""

    name: str
    column: str
    subset: str | None = None
    split: str = "test"


class NumberedText(NamedTuple):
    """The text of a problem and the number of its row, from 1."""

    row_number: int
    text: str


def check_other_set(other: OtherSet) -> None:
    """Find what is wrong with a file before anything heavy loads; a hub set or a folder is not looked up.

    Raises:
        UserError: If it is missing, empty, unreadable, of unknown kind, or lacks the column.
    """
    path = local_file(other.name)
    if path is not None:
        require_problem_column(read_rows(path), other, str(path.absolute()))


def read_other_set(other: OtherSet) -> list[NumberedText]:
    """The texts of all rows that hold a problem.

    Raises:
        UserError: If they cannot be read, or no row holds one.
    """
    where, rows = named_rows(other.name, other.subset, other.split)
    require_problem_column(rows, other, where)
    texts = [
        NumberedText(row_number, text)
        for row_number, row in enumerate(rows, start=1)
        if (text := text_or_none(row, other.column)) is not None
    ]
    if not texts:
        raise UserError(f'{where} has no problem in its column "{other.column}"')
    return texts


def text_or_none(row: object, column: str) -> str | None:
    if not isinstance(row, dict):
        return None
    try:
        return read_problem(row.get(column), row)[0]
    except UnusableRow:  # an empty cell: nothing to compare with
        return None


def require_problem_column(rows: Sequence[object], other: OtherSet, where: str) -> None:
    if not rows:
        raise UserError(f"{where} has no rows; it must hold at least one problem")
    try:
        require_column(other.column, column_names(rows), (), where)
    except UserError as error:
        raise UserError(f"{error}; name the column of its problems with against_problem_column") from error
