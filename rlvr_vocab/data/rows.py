"""Turns the rows of a problem set into usable problems and prompts, with a reason for every row left out."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rlvr_vocab.data.answers import UnusableRow, cell_answer, cell_at, cell_text, column_names, is_nan, plain_text
from rlvr_vocab.data.choices import asked_in, choices_in, reading_of
from rlvr_vocab.data.files import read_rows
from rlvr_vocab.data.problem_key import problem_key
from rlvr_vocab.data.source import READINGS, ProblemSource, PromptStyle
from rlvr_vocab.data.suggest import suggested_keys
from rlvr_vocab.errors import UserError
from rlvr_vocab.text import short_text, visible_text

Messages = list[dict[str, str]]

ROLES = ("system", "user", "assistant")
# Python joins surrogate pairs on reading, so a surrogate left in a text is half of a pair.
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Problem:
    """One usable row, counted from 1; `row` is the row as it was read.

    `text` is the text of the problem, also where it was given as a conversation, which `messages` then holds.
    `solution` is its bare final answer, mostly text; None in a set without answers.
    """

    text: str
    solution: Any
    row: Mapping[str, Any]
    row_number: int
    messages: Messages | None = None

    @cached_property
    def key(self) -> str:
        """Equal for two spellings of one problem."""
        return problem_key(self.text)


@dataclass(frozen=True)
class DroppedRow:
    """A row left out: its number (from 1), the reason, and a short excerpt."""

    row_number: int
    reason: str
    shown: str


@dataclass(frozen=True)
class UsableRows:
    problems: tuple[Problem, ...] = ()
    dropped: tuple[DroppedRow, ...] = ()
    columns: tuple[str, ...] = ()


def usable_rows(rows: Sequence[object], source: ProblemSource) -> UsableRows:
    """Sort rows into problems and dropped rows, keeping their order."""
    columns, answer, problems, dropped = source.columns, source.columns.answer, [], []
    decimal = source.decimal if columns.choices is None else "point"  # an answer stays the text of its choice

    def answer_in(row: Mapping[str, Any]) -> Any:
        return None if answer is None else cell_answer(cell_at(row, answer), source.answer_format, decimal)

    right_has_a_column = isinstance(columns.choices, tuple) and answer in columns.choices
    reading = "text" if right_has_a_column else str(source.answer_format)
    if columns.choices is not None and answer is not None and reading not in READINGS:
        asked = asked_in([row for row in rows if isinstance(row, dict)], columns.choices, answer_in)
        reading = reading_of(asked, f"{source.name}: {answer}")
    for row_number, row in enumerate(rows, start=1):
        text = None
        try:
            if not isinstance(row, dict):
                raise UnusableRow("row is not an object", row)
            if LONE_SURROGATE.search(str(cell_text(row))):
                raise UnusableRow("text holds half a surrogate pair, which UTF-8 cannot write", row)
            if row and all(name == cell for name, cell in row.items()):
                raise UnusableRow("row repeats the header", list(row))
            text, messages = read_problem(cell_at(row, columns.problem), row)
            if columns.tests is not None and not cell_at(row, columns.tests):
                raise UnusableRow("no tests", row)
            solution = answer_in(row)
            if columns.choices is not None:
                choices = choices_in(row, columns.choices)
                choices = choices.shuffled(text) if right_has_a_column else choices
                solution = None if answer is None else choices.letter_of(solution, reading)
                text = f"{text}\n{choices}"
                if messages is not None:
                    messages[-1]["content"] += f"\n{choices}"
            problems.append(Problem(text, solution, row, row_number, messages))
        except UnusableRow as unusable:
            shown = text if text and str(unusable.shown).strip() in ("", "nan", "None") else unusable.shown
            dropped.append(DroppedRow(row_number, unusable.reason, short_text(shown)))
    return UsableRows(tuple(problems), tuple(dropped), tuple(column_names(rows)))


def read_problem(value: object, row: object) -> tuple[str, Messages | None]:
    """The text of the problem in a cell, and its conversation, if any; raises UnusableRow without a problem."""
    messages = _read_conversation(value) if isinstance(value, list) else None
    text = plain_text(value) if messages is None else conversation_text(messages)
    if value is None or is_nan(value) or (text is not None and not text.strip()):
        raise UnusableRow("empty problem", row)
    if text is None:
        raise UnusableRow("problem is neither text, a number nor a list of messages", value)
    return text, messages


def _read_conversation(cell: Sequence[Any]) -> Messages:
    """The messages in a cell, with only role and content; contents of several parts are joined."""
    messages: Messages = []
    for message in cell:
        given = message if isinstance(message, dict) else {}
        content = given.get("content")
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
        written = [text for text in texts if isinstance(text, str)]
        if given.get("role") not in ROLES or len(written) < len(parts):
            raise UnusableRow(f"a message is no object with text and a role of {', '.join(ROLES)}", message)
        messages.append({"role": given["role"], "content": "".join(written)})
    roles = [message["role"] for message in messages]
    if "system" in roles[1:] or roles[-1:] == ["assistant"] or roles == ["system"]:
        raise UnusableRow("messages begin with the system's, if any, and end with the user's", cell[-1])
    return messages


def conversation_text(messages: Sequence[Mapping[str, str]], roles: Sequence[str] = ROLES[1:]) -> str:
    """The problem that a conversation asks: the contents of its messages, without the system's by default."""
    return "\n\n".join(message["content"] for message in messages if message["role"] in roles)


def disambiguate_by_system_prompt(sets: Sequence[UsableRows]) -> list[UsableRows]:
    """The sets with system messages in the texts of conversations, if these hold the questions.

    A question under several system messages is normally one problem. But if fewer than one in ten conversations has a
    text of its own, the system messages contain the question.
    """

    def whole(problem: Problem) -> Problem:
        return replace(problem, text=conversation_text(problem.messages, ROLES)) if problem.messages else problem

    asked = [problem for each in sets for problem in each.problems if problem.messages]
    if 10 * len({problem.text for problem in asked}) >= len({whole(problem).text for problem in asked}):
        return list(sets)
    return [replace(each, problems=tuple(map(whole, each.problems))) for each in sets]


def build_messages(problem: str, style: PromptStyle) -> Messages:
    """The conversation up to the problem: system message if any, solved turns, then the problem."""
    turns = [turn for example in style.examples for turn in zip(("user", "assistant"), example, strict=True)]
    system = [("system", style.system_prompt)] if style.system_prompt else []
    return [{"role": role, "content": text} for role, text in (*system, *turns, ("user", problem))]


def prompt_of(problem: Problem, style: PromptStyle) -> Messages:
    """The conversation that asks a problem; a conversation from the file gets only a missing system message."""
    if problem.messages is None:
        return build_messages(problem.text, style)
    refuse_examples(style)
    has_system = problem.messages[0]["role"] == "system" or not style.system_prompt
    return problem.messages if has_system else [*build_messages("", style)[:1], *problem.messages]


def refuse_examples(style: PromptStyle) -> None:
    """Raises UserError where solved turns would precede problems that are already conversations."""
    if style.examples:
        remedy = "put solved turns into them, or set dataset.examples=null"
        raise UserError(f"dataset.examples: problems that are chat messages are used unchanged: {remedy}")


def require_columns(source: ProblemSource, rows: Sequence[object]) -> None:
    """Raises UserError where a mapped column is missing; names the columns, and the keys that fit them."""
    mapped, found = source.columns.names, column_names(rows)
    for wanted, key in mapped.items():
        if wanted in found or any(isinstance(row, dict) and cell_at(row, wanted) is not None for row in rows):
            continue
        key = source.problem_key if key == "dataset.columns.problem" else key
        names = ", ".join(map(visible_text, found)) or "none"
        advice = suggested_keys(rows, source, key) if key.startswith("dataset.") else ""
        advice = advice or f"set {key}=…"
        raise UserError(f'{source.name} has no column "{wanted}"; its columns are {names:.600}; {advice}')


# In a file for `generate`, the first of these columns that exists holds the prompts.
PROMPT_COLUMNS = ("prompt", "prompts", "messages", "problem", "question", "input", "query", "text")


def read_prompts(path: Path) -> list[Messages]:
    """The prompts of a file: one per line of a TXT file, else one per row, as text or a list of messages."""
    rows = read_rows(path)
    names = column_names(rows)
    column = next((name for name in PROMPT_COLUMNS if name in names), None)
    if names and column is None:
        listed = ", ".join(map(short_text, names))
        raise UserError(f"prompts={path}: its columns are {listed}; call the one of the prompts prompt")
    if not rows:
        raise UserError(f"prompts={path}: no prompts in it")
    prompts = []
    for number, row in enumerate(rows, start=1):
        cell = row.get(column) if isinstance(row, dict) else row
        try:
            text, messages = read_problem(cell, cell)
        except UnusableRow as unusable:
            raise UserError(f"{path}: row {number}: {unusable.reason}: {short_text(unusable.shown, 40)}") from None
        prompts.append(messages or [{"role": "user", "content": text}])
    return prompts
