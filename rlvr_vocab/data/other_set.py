"""The problems of another set, to compare with: only their text is needed, no answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rlvr_vocab.data.answers import UnusableRow
from rlvr_vocab.data.files import read_rows
from rlvr_vocab.data.load import named_rows
from rlvr_vocab.data.paths import local_file
from rlvr_vocab.data.rows import column_names, problem_text, require_column, without_lone_surrogates
from rlvr_vocab.errors import UserError


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
        return without_lone_surrogates(problem_text(row.get(column), row))
    except UnusableRow:  # an empty cell: nothing to compare with
        return None


def require_problem_column(rows: Sequence[object], other: OtherSet, where: str) -> None:
    if not rows:
        raise UserError(f"{where} has no rows; it must hold at least one problem")
    try:
        require_column(other.column, column_names(rows), (), where)
    except UserError as error:
        raise UserError(f"{error}; name the column of its problems with against_problem_column") from error
