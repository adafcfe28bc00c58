"""Reasons why usable problems would not reach the model as they are meant."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rlvr_vocab.data.answers import NEARLY_ALL, cell_text, is_nan, plain_text
from rlvr_vocab.data.conversation import ROLES, conversation_text
from rlvr_vocab.data.rows import Problem, column_names
from rlvr_vocab.data.source import Columns
from rlvr_vocab.text import pluralize, rows_in_words

# Headers of turns: ChatML, Llama 3, Gemma, Llama 2 and Mistral, DeepSeek and Phi, gpt-oss, Command R, transcripts.
RENDERED = re.compile(
    r"<\|im_start\|>\s*(?:system|user|assistant)|<\|start_header_id\|>\s*(?:system|user|assistant)"
    r"|<start_of_turn>\s*(?:user|model)|\[/INST\]|<<SYS>>|<[|｜](?:system|user|assistant)[|｜]>"
    r"|<\|start\|>(?:system|developer|user|assistant)|<\|START_OF_TURN_TOKEN\|>"
    r"|\s(?:#+ *(?:Assistant|Response)|Assistant|Human) *:\s*\Z",
    re.IGNORECASE,
)
MESSAGES_AS_TEXT = re.compile(
    r"""\A\s*(?:(?:array\(|\{\s*['"]\w+['"]\s*:)?\s*\[\s*\{\s*['"](?:role|content|from|value)|\{\s*['"]role)['"]\s*:"""
)
# Columns that a question chooses from, one for all choices or one for each, and those that it is about.
_CHOICES = re.compile(r"(?:answer_?)?(?:choices?|options?)|alternatives|candidates|endings|mc\d_targets", re.IGNORECASE)
_ONE_CHOICE = re.compile(r"(?:choice|option|opt?|sol|ending)_?(?:[a-h]|\d)|[a-h]", re.IGNORECASE)
_ABOUT = re.compile(
    r"(?:context|ctx|passage|paragraph|article|document|background)s?|body|story|premise|input|starter_code"
    r"|(?:image|table|figure|diagram|picture)(?:_?\d+|s)?|(?:pre|post)_text",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w+|\0")  # in a list that is written as text too
_LETTER = re.compile(r"\(?[A-J]\)?\.?")


def turns_in_problems(problems: Sequence[Problem]) -> Iterator[str]:
    """A line on problems that are messages written as text, and on those with turns in them already."""
    for pattern, what in ((MESSAGES_AS_TEXT, "messages written as text"), (RENDERED, "rendered for a chat already")):
        rows = [problem.row_number for problem in problems if pattern.search(problem.text)]
        if rows:
            are = pluralize(len(rows), "problem is", "problems are")
            yield f"{are} {what} ({rows_in_words(rows)}): give a list of messages, or the question alone"


def missing_columns(problems: Sequence[Problem], columns: Columns) -> Iterator[str]:
    """A line on each column that most questions need and their prompts lack."""
    golds = [cell_text(problem.solution) or "" for problem in problems]
    letters = ", with their letters" * _nearly_all(_LETTER.fullmatch(gold.strip()) is not None for gold in golds)
    for names in [*_choices(problems, columns), *_named(_ABOUT, problems, columns)]:
        if sum(_lacks(problem, _texts_of(problem, names)) for problem in problems) > len(problems) / 2:
            several = len(names) > 1
            yield (
                f"column{'s' * several} {', '.join(names)}: not in the prompt, which holds {columns.problem} alone: "
                f"write {'them' if several else 'it'} there{letters * (_ABOUT.fullmatch(names[0]) is None)}"
            )


def numbered_choices(problems: Sequence[Problem], columns: Columns) -> Iterator[str]:
    """A line where the gold answers are the places of the right choices."""
    golds = [cell_text(problem.solution) or "" for problem in problems]
    for names in _choices(problems, columns):
        if _nearly_all(_is_index(gold, _texts_of(each, names)) for gold, each in zip(golds, problems, strict=True)):
            yield f"the gold answers are indices of {', '.join(names)}: give the text of the choice, or its letter"


def _choices(problems: Sequence[Problem], columns: Columns) -> list[tuple[str, ...]]:
    single = tuple(name for [name] in _named(_ONE_CHOICE, problems, columns))
    return [*_named(_CHOICES, problems, columns), *([single] if len(single) > 1 else [])]


def _named(pattern: re.Pattern[str], problems: Sequence[Problem], columns: Columns) -> list[tuple[str, ...]]:
    names = column_names(problem.row for problem in problems)
    return [(name,) for name in names if name not in columns.names and pattern.fullmatch(name)]


def _texts_of(problem: Problem, names: Sequence[str]) -> list[str]:
    return [text for name in names for text in _texts(problem.row.get(name))]


def _lacks(problem: Problem, texts: Sequence[str]) -> bool:
    prompt = problem.text if problem.messages is None else conversation_text(problem.messages, ROLES)
    return not set(_WORD.findall(" ".join(texts))) <= set(_WORD.findall(prompt))


def _is_index(gold: str, choices: Sequence[str]) -> bool:
    return len(choices) > 1 and gold not in choices and gold.isascii() and gold.isdigit() and int(gold) <= len(choices)


def _nearly_all(found: Iterable[bool]) -> bool:
    each = list(found)
    return sum(each) >= NEARLY_ALL * len(each) > 0


def _texts(value: Any) -> Iterator[str]:
    """The texts in a cell; for what is neither text nor a number, as an image, one that no prompt holds."""
    if isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(each)
    elif value is not None and not is_nan(value):
        text = plain_text(value)
        yield "\0" if text is None else text
