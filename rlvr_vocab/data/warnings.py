"""Warnings that usable problems may not reach the model as intended: one line each, with the remedy."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rlvr_vocab.data.answers import NEARLY_ALL, cell_text, column_names, is_nan, plain_text
from rlvr_vocab.data.rows import ROLES, Problem, conversation_text
from rlvr_vocab.data.source import Columns
from rlvr_vocab.data.suggest import CHOICES, MATERIAL, ONE_CHOICE, joined_columns, typed_keys
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
    lacking, choices = missing_columns(problems, columns), _choice_columns(problems, columns)
    for names in choices:
        golds = ((cell_text(problem.solution) or "", _texts_of(problem, names)) for problem in problems)
        are_indices = _nearly_all(_is_index(gold, texts) for gold, texts in golds)
        facts = {"not in the prompt": names in lacking, "the gold answers are their indices": are_indices}
        if found := " and ".join(fact for fact, holds in facts.items() if holds):
            keys = typed_keys({"dataset.columns.choices": names if len(names) > 1 else names[0]})
            yield f"{_listed(names)}: {found}: set {keys}, and train with 'rewards=[multiple_choice]'"
    if material := [name for names in lacking if names not in choices for name in names]:
        keys = typed_keys({"dataset.prompt": joined_columns(columns.problem, material)})
        is_text = all(_NOT_TEXT not in _texts_of(problem, material) for problem in problems)
        yield f"{_listed(material)}: not in the prompt: {f'set {keys}' if is_text else 'no prompt holds images'}"


def _listed(names: Sequence[str]) -> str:
    return f"column{'s' * (len(names) > 1)} {', '.join(names)}"


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
