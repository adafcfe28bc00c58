"""Warnings that usable problems may not reach the model as intended: one line each, with the remedy."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rlvr_vocab.data.answers import NEARLY_ALL, cell_text, is_nan, plain_text
from rlvr_vocab.data.rows import ROLES, Problem, column_names, conversation_text
from rlvr_vocab.data.source import Columns
from rlvr_vocab.text import pluralize, rows_in_words

# Texts of problems that are not a plain question.
TEXT_CHECKS = {
    "messages written as text": re.compile(
        r"""\A\s*(?:(?:array\(|\{\s*['"]\w+['"]\s*:)?\s*\[\s*\{\s*['"](?:role|content|from|value)|\{\s*['"]role)"""
        r"""['"]\s*:"""
    ),
    # Headers of turns: ChatML, Llama 3, Gemma, Llama 2 and Mistral, DeepSeek and Phi, gpt-oss, Command R, transcripts.
    "rendered for a chat already": re.compile(
        r"<\|im_start\|>\s*(?:system|user|assistant)|<\|start_header_id\|>\s*(?:system|user|assistant)"
        r"|<start_of_turn>\s*(?:user|model)|\[/INST\]|<<SYS>>|<[|｜](?:system|user|assistant)[|｜]>"
        r"|<\|start\|>(?:system|developer|user|assistant)|<\|START_OF_TURN_TOKEN\|>"
        r"|\s(?:#+ *(?:Assistant|Response)|Assistant|Human) *:\s*\Z",
        re.IGNORECASE,
    ),
}
# Names of columns: all choices of a question, one choice per column, and material that the question refers to.
CHOICES = re.compile(r"(?:answer_?)?(?:choices?|options?)|alternatives|candidates|endings|mc\d_targets", re.IGNORECASE)
ONE_CHOICE = re.compile(r"(?:choice|option|opt?|sol|ending)_?(?:[a-h]|\d)|[a-h]", re.IGNORECASE)
MATERIAL = re.compile(
    r"(?:context|ctx|passage|paragraph|article|document|background)s?|body|story|premise|input|starter_code"
    r"|(?:image|table|figure|diagram|picture)(?:_?\d+|s)?|(?:pre|post)_text",
    re.IGNORECASE,
)
_NOT_TEXT = "\0"  # stands for an image or another value that no prompt holds
_WORD = re.compile(rf"\w+|{_NOT_TEXT}")
_LETTER = re.compile(r"\(?[A-J]\)?\.?")


def problem_warnings(problems: Sequence[Problem], columns: Columns) -> Iterator[str]:
    for kind, pattern in TEXT_CHECKS.items():
        rows = [problem.row_number for problem in problems if pattern.search(problem.text)]
        if rows:
            are = pluralize(len(rows), "problem is", "problems are")
            yield f"{are} {kind} ({rows_in_words(rows)}): give a list of messages, or the question alone"
    golds = [cell_text(problem.solution) or "" for problem in problems]
    for names in _choice_columns(problems, columns):
        if _nearly_all(_is_index(gold, _texts_of(each, names)) for gold, each in zip(golds, problems, strict=True)):
            yield f"the gold answers are indices of {', '.join(names)}: give the text of the choice, or its letter"
    by_letter = _nearly_all(_LETTER.fullmatch(gold.strip()) is not None for gold in golds)
    for names in missing_columns(problems, columns):
        letters = ", with their letters" * (by_letter and not MATERIAL.fullmatch(names[0]))
        listed = f"column{'s' * (len(names) > 1)} {', '.join(names)}"
        yield f"{listed}: not in the prompt, which holds {columns.problem} alone: add the content there{letters}"


def missing_columns(problems: Sequence[Problem], columns: Columns) -> list[tuple[str, ...]]:
    """Columns that most questions need and their prompts lack; columns with one choice each are grouped."""
    needed = [*_choice_columns(problems, columns), *((name,) for name in _named(MATERIAL, problems, columns))]
    return [names for names in needed if 2 * sum(_lacks(problem, names) for problem in problems) > len(problems)]


def _choice_columns(problems: Sequence[Problem], columns: Columns) -> list[tuple[str, ...]]:
    single = tuple(_named(ONE_CHOICE, problems, columns))
    return [*((name,) for name in _named(CHOICES, problems, columns)), *([single] if len(single) > 1 else [])]


def _named(pattern: re.Pattern[str], problems: Sequence[Problem], columns: Columns) -> list[str]:
    names = column_names(problem.row for problem in problems)
    return [name for name in names if name not in columns.names and pattern.fullmatch(name)]


def _lacks(problem: Problem, names: Sequence[str]) -> bool:
    prompt = problem.text if problem.messages is None else conversation_text(problem.messages, ROLES)
    return not set(_WORD.findall(" ".join(_texts_of(problem, names)))) <= set(_WORD.findall(prompt))


def _is_index(gold: str, choices: Sequence[str]) -> bool:
    return len(choices) > 1 and gold not in choices and gold.isascii() and gold.isdigit() and int(gold) <= len(choices)


def _nearly_all(found: Iterable[bool]) -> bool:
    each = list(found)
    return sum(each) >= NEARLY_ALL * len(each) > 0


def _texts_of(problem: Problem, names: Sequence[str]) -> list[str]:
    return [text for name in names for text in _texts(problem.row.get(name))]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(each)
    elif value is not None and not is_nan(value):
        text = plain_text(value)
        yield _NOT_TEXT if text is None else text
