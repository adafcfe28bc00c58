"""From the rows of a problem set to usable problems, with every row left out accounted for."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from rlvr_vocab.data.answers import UnusableRow, cell_answer, cell_text, is_nan, plain_text
from rlvr_vocab.data.conversation import ROLES, Messages, conversation_text, read_conversation
from rlvr_vocab.data.source import Columns
from rlvr_vocab.data.wording import problem_key
from rlvr_vocab.errors import UserError
from rlvr_vocab.text import nearest_word, visible_text

# Python joins whole pairs on reading, so whatever is left of them in a text is half of one.
LONE_SURROGATE = re.compile("[\ud800-\udfff]")

# What the columns that a user maps, by the names of `Columns`, hold.
_CONTENTS = {"problem": "problems", "answer": "answers", "reasoning": "worked solutions"}

_CONVERSATIONS = 10

NOT_AN_OBJECT = "row is not an object"
EMPTY_PROBLEM = "empty problem"
NOT_A_PROBLEM = "problem is neither text, a number nor a list of messages"
NOT_WRITABLE = "text holds half a surrogate pair, which UTF-8 cannot write"


@dataclass(frozen=True)
class Problem:
    """One usable row.

    Args:
        text: The problem, however it was given.
        solution: Its bare final answer, mostly text; None in a set without answers.
        row: As it was read.
        row_number: From 1.
        messages: The conversation that asks the problem; None where it was given as text.
    """

    text: str
    solution: Any
    row: Mapping[str, Any]
    row_number: int
    messages: Messages | None = None

    @cached_property
    def key(self) -> str:
        """What makes two problems the same one."""
        return problem_key(self.text)

    @property
    def fingerprinted(self) -> tuple[str, str | None]:
        """What tells whether two sets hold the same problems: the text, and the answer as text."""
        return self.text, cell_text(self.solution)


@dataclass(frozen=True)
class DroppedRow:
    """A row left out: its number (from 1), why, and a short text that shows it."""

    row_number: int
    reason: str
    shown: str


@dataclass(frozen=True)
class UsableRows:
    """What a problem set came to."""

    problems: tuple[Problem, ...] = ()
    dropped: tuple[DroppedRow, ...] = ()
    columns: tuple[str, ...] = ()


def usable_rows(rows: Sequence[object], columns: Columns, answer_format: str, decimal: str = "point") -> UsableRows:
    """Sort rows into problems and dropped rows, keeping their order."""
    problems, dropped = [], []
    for row_number, row in enumerate(rows, start=1):
        try:
            problems.append(problem_of_row(row, row_number, columns, answer_format, decimal))
        except UnusableRow as unusable:
            dropped.append(DroppedRow(row_number, unusable.reason, short_text(unusable.shown)))
    return UsableRows(tuple(problems), tuple(dropped), tuple(column_names(rows)))


def disambiguate_by_system_prompt(sets: Sequence[UsableRows]) -> list[UsableRows]:
    """The sets with the system messages in the texts of the problems, where those of the users tell too few apart.

    A question that stands under several system messages is one problem, wherever it is held out; but where fewer than
    one in `_CONVERSATIONS` conversations has a text of its own, what is asked stands in the system messages.
    """
    asked = [problem for each in sets for problem in each.problems if problem.messages is not None]
    conversations = {(problem.text, conversation_text(problem.messages or (), ROLES)) for problem in asked}
    if _CONVERSATIONS * len({text for text, _ in conversations}) >= len(conversations):
        return list(sets)
    return [replace(each, problems=tuple(map(_with_system_message, each.problems))) for each in sets]


def _with_system_message(problem: Problem) -> Problem:
    if problem.messages is None:
        return problem
    return replace(problem, text=conversation_text(problem.messages, ROLES))


def problem_of_row(row: object, row_number: int, columns: Columns, answer_format: str, decimal: str) -> Problem:
    """The problem in one row.

    Raises:
        UnusableRow: If there is none; what it shows is the part of the row that helps to find it.
    """
    if not isinstance(row, dict):
        raise UnusableRow(NOT_AN_OBJECT, row)
    if has_lone_surrogate(row):
        raise UnusableRow(NOT_WRITABLE, row)
    text, messages = read_problem(row.get(columns.problem), row)
    if columns.answer is None:
        return Problem(text, None, row, row_number, messages)
    try:
        solution = cell_answer(row.get(columns.answer), answer_format, decimal)
    except UnusableRow as unusable:
        nothing_to_show = unusable.shown is None or str(unusable.shown).strip() in ("", "nan")
        raise UnusableRow(unusable.reason, text if nothing_to_show else unusable.shown) from None
    return Problem(text, solution, row, row_number, messages)


def read_problem(value: object, row: object) -> tuple[str, Messages | None]:
    """The text of the problem in a cell, and the conversation that it stands in, if any.

    Raises:
        UnusableRow: If there is no problem.
    """
    if isinstance(value, list):
        messages = read_conversation(value)
        text = conversation_text(messages)
        if not text.strip():
            raise UnusableRow(EMPTY_PROBLEM, row)
        return text, messages
    if value is None or is_nan(value) or (isinstance(value, str) and not value.strip()):
        raise UnusableRow(EMPTY_PROBLEM, row)
    plain = plain_text(value)
    if plain is None:
        raise UnusableRow(NOT_A_PROBLEM, value)
    return plain, None


def has_lone_surrogate(value: object) -> bool:
    r"""Whether a text in the value holds half a surrogate pair: JSON can write `"\ud800"`, UTF-8 cannot."""
    if isinstance(value, str):
        return LONE_SURROGATE.search(value) is not None
    if isinstance(value, dict):
        return any(has_lone_surrogate(name) or has_lone_surrogate(inner) for name, inner in value.items())
    return isinstance(value, list) and any(has_lone_surrogate(inner) for inner in value)


def short_text(value: object, limit: int = 60) -> str:
    """A value on one line, cut at `limit` characters; nothing in it that a terminal would obey."""
    line = visible_text(" ".join(str(value).split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def require_columns(columns: Columns, found: Iterable[str], where: str) -> None:
    """Refuse a problem set that lacks a mapped column.

    Raises:
        UserError: Names the columns there are, one with a similar name, and the key of the missing one.
    """
    found = list(found)
    spare = [name for name in found if name not in columns.names]
    for key, content in _CONTENTS.items():
        wanted = getattr(columns, key)
        if wanted is not None:
            none_at_all = ", or set it to null where there are none" if key == "answer" else ""
            advice = f"; name the column of its {content} with dataset.columns.{key}=…{none_at_all}"
            require_column(wanted, found, spare, where, advice)


def require_column(wanted: str, found: Sequence[str], spare: Sequence[str], where: str, advice: str = "") -> None:
    """Refuse a problem set whose columns, the `found` ones, lack the wanted one; `spare` may be meant instead."""
    if wanted in found:
        return
    nearest = nearest_word(wanted, spare)
    hint = f'; nearest to it is "{nearest}"' if nearest is not None else ""
    raise UserError(f'{where} has no column "{wanted}"; its columns are {", ".join(found) or "none"}{hint}{advice}')


def column_names(rows: Iterable[object]) -> list[str]:
    """The columns that occur in any row, in the order of their first occurrence."""
    return list(dict.fromkeys(name for row in rows if isinstance(row, dict) for name in row))
