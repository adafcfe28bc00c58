"""Work that one process does for all: its child takes part in no distributed training."""

import os
from pathlib import Path

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.files import read_json
from rlvr_vocab.runs.model import _in_a_child


def test_the_child_is_no_process_of_the_launcher_and_its_error_is_the_callers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("RANK", "TORCHELASTIC_RUN_ID", "ACCELERATE_USE_CPU"):
        monkeypatch.setenv(name, "1")
    assert [_in_a_child(os.getenv, (name,)) for name in ("RANK", "TORCHELASTIC_RUN_ID")] == [None, None]
    assert _in_a_child(os.getenv, ("ACCELERATE_USE_CPU",)) == "1"
    assert os.environ["RANK"] == "1"
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(UserError, match="is not readable JSON"):
        _in_a_child(read_json, (tmp_path / "a.json",))
