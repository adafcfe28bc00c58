"""A folder appears whole or not at all, and others can read it."""

import stat

import pytest

from rlvr_vocab.atomic_folder import folder_appearing_whole


def test_it_takes_its_name_with_everything_in_it_readable_by_all(tmp_path):
    folder = tmp_path / "out" / "model"
    with folder_appearing_whole(folder) as partial:
        (partial / "inner").mkdir(mode=0o700)
        for file in (partial / "weights", partial / "inner" / "tokenizer"):
            file.write_text("x")
            file.chmod(0o600)
        assert not folder.exists()
    modes = {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}
    assert modes == {"weights": 0o644, "inner": 0o755, "inner/tokenizer": 0o644}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_a_failure_leaves_nothing(tmp_path):
    def half_written():
        with folder_appearing_whole(tmp_path / "model") as partial:
            (partial / "half").write_text("x")
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        half_written()
    assert list(tmp_path.iterdir()) == []


def test_what_somebody_else_made_meanwhile_stays(tmp_path):
    with folder_appearing_whole(tmp_path / "model") as partial:
        (partial / "mine").write_text("x")
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "theirs").write_text("y")
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["theirs"]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
