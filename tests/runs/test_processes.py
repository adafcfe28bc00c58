"""Work that one process does for all: its child takes part in no distributed training."""

import os
from pathlib import Path

import pytest

from rlvr_vocab.files import read_json
from rlvr_vocab.runs.processes import _in_a_child


def test_the_child_is_no_process_of_the_launcher_and_this_one_stays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "TORCHELASTIC_RUN_ID", "ACCELERATE_USE_CPU"):
        monkeypatch.setenv(name, "1")
    assert _in_a_child(os.getenv, ("RANK",)) == _in_a_child(os.getenv, ("TORCHELASTIC_RUN_ID",)) == (None, None)
    assert _in_a_child(os.getenv, ("ACCELERATE_USE_CPU",)) == ("1", None)
    assert os.environ["RANK"] == "1"


def test_an_error_of_the_user_comes_back_as_its_message(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    result, error = _in_a_child(read_json, (tmp_path / "a.json",))
    assert result is None and error is not None and "a.json is not readable JSON" in error
