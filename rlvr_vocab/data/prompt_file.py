"""Prompts from a file, each as the messages of a chat."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlvr_vocab.data.files import check_file, read_rows, read_text
from rlvr_vocab.data.rows import column_names, short_text
from rlvr_vocab.errors import UserError

Messages = list[dict[str, str]]

# The column of the prompts is the first of these that a file has.
COLUMNS = ("prompt", "prompts", "messages", "problem", "question", "input", "query", "text")


def check_prompt_file(path: Path) -> None:
    """Raises UserError where nothing at the path can hold prompts; nothing is read."""
    if path.suffix.lower() != ".txt":
        check_file(path)
    elif not path.is_file():
        raise UserError(f"prompts={path}: no such file")


def read_prompts(path: Path) -> list[Messages]:
    """The prompts of a file: a line each of a TXT file, else a row each, text or a list of messages.

    Raises:
        UserError: the file cannot be read, has no prompts, or a row is none.
    """
    if path.suffix.lower() == ".txt":
        # Not splitlines(): it also breaks at U+2028, U+0085 and form feeds, which a prompt may hold.
        lines = [line.removesuffix("\r") for line in read_text(path).split("\n")]
        prompts = [_user(line) for line in lines if line.strip()]
    else:
        rows = read_rows(path)
        column = _column([row for row in rows if isinstance(row, dict)], path)
        cells = [row[column] if isinstance(row, dict) and column in row else row for row in rows]
        prompts = [_messages(cell, f"{path}: row {number}") for number, cell in enumerate(cells, start=1)]
    if not prompts:
        raise UserError(f"prompts={path}: no prompts in it")
    return prompts


def _user(text: str) -> Messages:
    return [{"role": "user", "content": text}]


def _column(rows: Sequence[dict[str, Any]], path: Path) -> str | None:
    if not rows:
        return None
    names = column_names(rows)
    named = next((name for name in COLUMNS if name in names), None)
    if named is None:
        listed = ", ".join(map(short_text, names))
        raise UserError(f"prompts={path}: its columns are {listed}; call the one of the prompts prompt")
    return named


def _messages(cell: Any, where: str) -> Messages:
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        raise UserError(f"{where} is empty")
    if isinstance(cell, str):
        return _user(cell)
    if isinstance(cell, list) and cell and all(_is_message(message) for message in cell):
        return [{"role": message["role"], "content": message["content"]} for message in cell]
    raise UserError(f"{where} is {short_text(cell, 40)}, neither text nor a list of messages with role and content")


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(key), str) for key in ("role", "content"))
