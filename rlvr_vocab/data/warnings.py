"""Warnings that usable problems may not reach the model as intended: one line each, with the remedy."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from rlvr_vocab.data.answers import cell_at, column_names, is_nan, plain_text
from rlvr_vocab.data.choices import asked_in, readings_that_fit
from rlvr_vocab.data.rows import ROLES, Problem, conversation_text
from rlvr_vocab.data.source import Columns
from rlvr_vocab.data.suggest import MATERIAL, choice_columns, joined_columns, typed_keys
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
_NOT_TEXT = "\0"  # stands for an image or another value that no prompt holds
_WORD = re.compile(rf"\w+|{_NOT_TEXT}")


def problem_warnings(problems: Sequence[Problem], columns: Columns) -> Iterator[str]:
    for kind, pattern in TEXT_CHECKS.items():
        rows = [problem.row_number for problem in problems if pattern.search(problem.text)]
        if rows:
            are = pluralize(len(rows), "problem is", "problems are")
            yield f"{are} {kind} ({rows_in_words(rows)}): give a list of messages, or the question alone"
    lacking, choices = missing_columns(problems, columns), choice_columns(_unmapped(problems, columns))
    for names in choices:
        graded = [problem.row for problem in problems] if columns.answer is not None else []
        fits = readings_that_fit(asked_in(graded, names, partial(cell_at, column=columns.answer or "")))
        are_indices = bool(fits) and all(reading.startswith("index") for reading in fits)
        facts = {"not in the prompt": names in lacking, "the gold answers are their indices": are_indices}
        if found := " and ".join(fact for fact, holds in facts.items() if holds):
            keys = typed_keys({"dataset.columns.choices": names})
            yield f"{_listed(names)}: {found}: set {keys}, and train with 'rewards=[multiple_choice]'"
    if material := [name for name in lacking if isinstance(name, str) and name not in choices]:
        keys = typed_keys({"dataset.prompt": joined_columns(columns.problem, material)})
        is_text = all(_NOT_TEXT not in _texts_of(problem, material) for problem in problems)
        yield f"{_listed(material)}: not in the prompt: {f'set {keys}' if is_text else 'no prompt holds images'}"


def _listed(names: str | Sequence[str]) -> str:
    return f"column {names}" if isinstance(names, str) else f"column{'s' * (len(names) > 1)} {', '.join(names)}"


def missing_columns(problems: Sequence[Problem], columns: Columns) -> list[str | tuple[str, ...]]:
    """Columns that most questions need and their prompts lack; columns with one choice each are grouped."""
    names = _unmapped(problems, columns)
    needed = [*choice_columns(names), *filter(MATERIAL.fullmatch, names)]
    return [each for each in needed if 2 * sum(_lacks(problem, each) for problem in problems) > len(problems)]


def _unmapped(problems: Sequence[Problem], columns: Columns) -> list[str]:
    return [name for name in column_names(problem.row for problem in problems) if name not in columns.names]


def _lacks(problem: Problem, names: str | Sequence[str]) -> bool:
    prompt = problem.text if problem.messages is None else conversation_text(problem.messages, ROLES)
    return not set(_WORD.findall(" ".join(_texts_of(problem, names)))) <= set(_WORD.findall(prompt))


def _texts_of(problem: Problem, names: str | Sequence[str]) -> list[str]:
    return [text for name in ([names] if isinstance(names, str) else names) for text in _texts(problem.row.get(name))]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(each)
    elif value is not None and not is_nan(value):
        text = plain_text(value)
        yield _NOT_TEXT if text is None else text
