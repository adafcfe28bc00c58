"""The code of a run for those who start it through a launcher."""

from pathlib import Path

import pytest

from rlvr_vocab import cli
from rlvr_vocab.errors import FILE, Interrupted, OutOfRoom, UserError


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With the code of an earlier run in it."""
    path = tmp_path / "code"
    path.write_text("75\n")
    monkeypatch.setenv(FILE, str(path))
    monkeypatch.delenv("RANK", raising=False)
    return path


@pytest.mark.parametrize(
    ("error", "code"), [(UserError("bad"), 2), (OutOfRoom("full"), 74), (Interrupted("told"), 75), (None, 0)]
)
def test_the_main_process_leaves_its_code(error, code, file, monkeypatch):
    def dispatch(words):
        if error is not None:
            raise error
        return 0

    monkeypatch.setattr(cli, "dispatch", dispatch)
    assert cli.main(["train"]) == code
    assert file.read_text() == f"{code}\n"


def test_a_crash_leaves_none(file, monkeypatch):
    def dispatch(words):
        raise RuntimeError("a defect")

    monkeypatch.setattr(cli, "dispatch", dispatch)
    with pytest.raises(RuntimeError):
        cli.main(["train"])
    assert not file.exists()


def test_the_other_processes_leave_it_alone(file, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(cli, "dispatch", lambda words: 0)
    assert cli.main(["train"]) == 0
    assert file.read_text() == "75\n"
