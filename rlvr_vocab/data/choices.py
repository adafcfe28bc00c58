"""Questions with choices: the choices of a row, shown with letters, and the letter of the one that an answer names."""

from __future__ import annotations

import ast
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from string import ascii_uppercase
from typing import Any

from rlvr_vocab.data.answers import NEARLY_ALL, UnusableRow, cell_at, is_blank, plain_text
from rlvr_vocab.data.source import READINGS
from rlvr_vocab.errors import UserError
from rlvr_vocab.text import short_text

_LABELLED = re.compile(r"\s*\(?\s*([A-Z])\s*[).:]\s*(.*\S)\s*", re.DOTALL)  # AQuA's `A)21`
_IN_A_LINE = re.compile(r"(?:^|[\s,;])\(?([A-Ja-j])\s?[).:]\s")  # MathQA's `a ) 38 , b ) 27`
_LABELS, _TEXTS = ("label", "key", "id"), ("text", "choices", "content", "value")


@dataclass(frozen=True)
class Choices:
    """The texts of the choices, and the labels that the file gives them: letters where it gives none."""

    texts: tuple[str, ...]
    labels: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(f"{letter}. {text}" for letter, text in zip(ascii_uppercase, self.texts, strict=False))

    def shuffled(self, question: str) -> Choices:
        """The texts in an order that the question and the texts alone decide, not the order of their columns."""
        texts = sorted(self.texts)
        random.Random("\n".join((question, *texts))).shuffle(texts)
        return replace(self, texts=tuple(texts))

    def place(self, answer: object, reading: str) -> int | None:
        """The index of the choice that an answer names, by one of READINGS; None where it names none."""
        text = " ".join((plain_text(answer) or "").split())
        if reading == "letter":
            text = text.strip(" ().:").upper()
        names = {"letter": self.labels, "text": self.texts}.get(reading, ())
        if not names and re.fullmatch("[0-9]{1,3}", text):
            names = tuple(str(index + int(reading[-1])) for index in range(len(self.texts)))
        return names.index(text) if text in names else None

    def letter_of(self, answer: object, reading: str) -> str:
        """The letter of the right choice; raises UnusableRow where the answer names none, or one that stands twice."""
        place = self.place(answer, reading)
        if place is None or self.texts.count(self.texts[place]) > 1:
            reason = "answer names none of the choices" if place is None else "the right choice stands twice"
            raise UnusableRow(reason, answer)
        return ascii_uppercase[place]


def choices_in(row: Mapping[str, Any], columns: str | Sequence[str]) -> Choices:
    """The choices in one column, in any of the usual forms, or in several; raises UnusableRow without them."""
    if isinstance(columns, str):
        given = cell_at(row, columns)
        value = _parsed(given) if isinstance(given, str) else given
    else:
        cells = (cell_at(row, name) for name in columns)
        given = value = [each for cell in cells for each in (cell if isinstance(cell, list) else [cell])]
        while value and is_blank(value[-1]):  # a question may have fewer choices
            value.pop()
    if isinstance(value, Mapping):  # labels and texts as two lists, or label: text
        labels, texts = _field(value, _LABELS), _field(value, _TEXTS)
        pairs = zip(labels or [None] * len(texts), texts, strict=False) if isinstance(texts, list) else value.items()
        value = [{"label": label, "text": text} for label, text in pairs]
    listed = value if isinstance(value, list | tuple) else ()
    listed = [each if isinstance(each, Mapping) else {"text": each} for each in listed]
    texts = [" ".join((plain_text(_field(each, _TEXTS)) or "").split()) for each in listed]
    labels = [(plain_text(_field(each, _LABELS)) or "").strip(" ().:").upper() for each in listed]
    if not 2 <= len(texts) <= len(ascii_uppercase) or not all(texts):
        raise UnusableRow("choices are no list of 2 to 26 texts", given)
    if not any(labels):
        labels = list(ascii_uppercase[: len(texts)])
        own = [_LABELLED.fullmatch(text) for text in texts]
        if [match and match[1] for match in own] == labels:
            texts = [match[2] for match in own if match]
    if len(set(labels)) < len(labels):
        raise UnusableRow("two choices have one label", given)
    return Choices(tuple(texts), tuple(labels))


def _parsed(text: str) -> Any:
    """A list or an object written as text, in JSON or in Python, or choices in a line, each after its letter."""
    for parse in (json.loads, ast.literal_eval) if text.lstrip().startswith(("[", "{")) else ():
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return parse(text.strip())
    _, *parts = _IN_A_LINE.split(text)
    in_order = "".join(parts[::2]).upper() == ascii_uppercase[: len(parts) // 2]
    return [part.strip(" ,;\n") for part in parts[1::2]] if in_order else None


def _field(value: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((value[name] for name in names if name in value), None)


def asked_in(
    rows: Sequence[Mapping[str, Any]], columns: str | Sequence[str], answer_in: Callable[[Mapping[str, Any]], Any]
) -> list[tuple[object, Choices]]:
    """The answer and the choices of each row that has both."""
    found = []
    for row in rows:
        with suppress(UnusableRow):
            found.append((answer_in(row), choices_in(row, columns)))
    return found


def readings_that_fit(asked: Sequence[tuple[object, Choices]]) -> list[str]:
    """Of READINGS those by which all answers name one of their choices, else those by which nearly all do."""
    missing = {name: sum(choices.place(answer, name) is None for answer, choices in asked) for name in READINGS}
    fewest = min(missing.values())
    return [name for name in READINGS if missing[name] <= (fewest and (1 - NEARLY_ALL) * len(asked))]


def reading_of(asked: Sequence[tuple[object, Choices]], column: str) -> str:
    """What all answers of a column are: one of READINGS.

    Raises UserError where two readings fit and differ, as 1 and 2 may be indices from 0 or from 1, or where none fits.
    """
    fits = readings_that_fit(asked)
    if "letter" in fits and any(choices.labels[0] != "A" for _, choices in asked):
        return "letter"  # labels of the file, which may be numbers
    for answer, choices in asked:
        if len({choices.place(answer, each) for each in fits}) != 1:
            doubt = f"may be {' or '.join(fits)}" if fits else "are of several kinds, or of none"
            typed = " or ".join(f"dataset.answer_format={each}" for each in fits or READINGS)
            example = f'"{short_text(answer, 40)}" for {short_text(list(choices.texts), 80)}'
            raise UserError(f"{column}: the answers, such as {example}, {doubt}: set {typed}")
    return fits[0]
