"""Fixtures of the data tests: files written on the spot."""

import json

import pytest


@pytest.fixture
def write(tmp_path):
    """Writes a file into the test's folder, text as UTF-8 with its line ends untouched."""

    def write_file(name, content):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write_file


@pytest.fixture
def write_jsonl(write):
    """Writes rows as one JSON value per line."""

    def write_rows(*rows, name="problems.jsonl"):
        return write(name, "".join(json.dumps(row) + "\n" for row in rows))

    return write_rows
