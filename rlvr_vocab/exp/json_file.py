"""JSON, JSONL and other text files that appear whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rlvr_vocab.atomic_file import write_whole
from rlvr_vocab.errors import UserError


def json_text(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def write_json_whole(path: Path, content: dict[str, Any], key: str) -> None:
    """Write the file beside its place and move it there; `key` is the one that named it.

    Raises:
        UserError: it cannot be written there.
    """
    write_text_whole(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n", key)


def write_jsonl_whole(path: Path, rows: Iterable[dict[str, Any]], key: str) -> None:
    """The same with an object a line; what JSON has no form for, a date for instance, is written as text.

    Raises:
        UserError: it cannot be written there.
    """
    lines = (json.dumps(row, ensure_ascii=False, allow_nan=False, default=str) for row in rows)
    write_text_whole(path, "".join(f"{line}\n" for line in lines), key)


def write_text_whole(path: Path, text: str, key: str) -> None:
    """The same with any text.

    Raises:
        UserError: it cannot be written there.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Half a surrogate pair, which UTF-8 cannot write, becomes the escape that JSON has for it.
        write_whole(path, text, errors="backslashreplace")
    except OSError as error:
        raise UserError(f"{key}={path} cannot be written: {error.strerror or error}") from error


def read_json(path: Path, kinds: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """The object in a JSON file.

    Args:
        kinds: what its values are, by their keys: a type, several in a tuple, or a list or mapping of such.

    Raises:
        UserError: it holds none, or one whose value is of another type.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # UnicodeDecodeError among them
        raise UserError(f"{path} is not readable JSON ({error})") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} holds no JSON object")
    for key, kind in kinds.items():
        if key in content and not _is_a(kind, content[key]):
            raise UserError(f"{path} is damaged: {key} is {content[key]!r:.40}")
    return content


def read_json_if_there(path: Path, kinds: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any] | None:
    """The same; None where there is no such file."""
    return read_json(path, kinds) if path.is_file() else None


def _is_a(kind: Any, value: Any) -> bool:
    match kind:
        case tuple():
            return any(_is_a(each, value) for each in kind)
        case list():
            return isinstance(value, list) and all(_is_a(kind[0], each) for each in value)
        case dict():
            there = isinstance(value, dict) and value.keys() >= kind.keys()
            return there and all(_is_a(each, value[key]) for key, each in kind.items())
        case _:
            return value is None if kind is None else isinstance(value, kind)
