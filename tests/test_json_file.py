"""A JSON file appears whole or not at all."""

import json
from pathlib import Path

import pytest

from rlvr_vocab.atomic_file import write_json_whole
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.json_files import read_record


def test_the_file_holds_the_content_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "facts.json"
    write_json_whole(path, {"a": ["ü", None, 1.5]}, "out")
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": ["ü", None, 1.5]}
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_leaves_the_earlier_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "facts.json"
    path.write_text("{}")

    def full_disk(self: Path, text: str, **_: object) -> int:
        with self.open("w") as file:
            file.write(text[:3])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full_disk)
    with pytest.raises(UserError, match=r"out=.*facts\.json cannot be written: No space left on device"):
        write_json_whole(path, {"a": 1}, "out")
    assert path.read_text() == "{}"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_json_is_a_fault_of_ours_and_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json_whole(tmp_path / "facts.json", {"a": float("nan")}, "out")
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_type_in_a_file_of_a_run_is_named(tmp_path):
    for content, key in (({"steps": "six"}, "steps"), ({"findings": [{"title": 3}]}, "findings"), ({"sample": []}, "")):
        (tmp_path / "summary.json").write_text(json.dumps(content))
        with pytest.raises(UserError, match=rf"summary\.json is damaged: {key}"):
            read_record(tmp_path, "summary.json")
