"""Fixtures of the data tests: files written on the spot."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], Path]:
    """Writes a file into the test's folder, text as UTF-8 with its line ends untouched."""

    def write_file(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write_file


@pytest.fixture
def write_jsonl(write: Callable[[str, str | bytes], Path]) -> Callable[..., Path]:
    """Writes rows as one JSON value per line."""

    def write_rows(*rows: object, name: str = "problems.jsonl") -> Path:
        return write(name, "".join(json.dumps(row) + "\n" for row in rows))

    return write_rows
