"""Files and folders appear whole or not at all, and others can read them."""

import json
import os
import signal
import stat
from pathlib import Path

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_dir, atomic_write, json_text


def test_it_takes_its_name_with_everything_in_it_readable_by_all(tmp_path):
    folder = tmp_path / "out" / "model"
    with atomic_dir(folder) as partial:
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
        with atomic_dir(tmp_path / "model") as partial:
            (partial / "half").write_text("x")
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        half_written()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("killed_with", [{}, {"keep_existing": True}], ids=["else", "in a cache"])
def test_the_remains_of_a_killed_process_are_removed_by_the_next_and_those_of_a_living_one_stay(killed_with, tmp_path):
    folder = tmp_path / "[model]"
    child = os.fork()
    if not child:
        with atomic_dir(folder, **killed_with) as partial:
            (partial / "weights").write_text("a whole copy")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    [left] = tmp_path.iterdir()
    assert left.name.startswith("[model].partial-") and (left / "weights").is_file()
    with atomic_dir(folder, keep_existing=True) as living:
        assert list(tmp_path.iterdir()) == [living]
        with atomic_dir(folder) as other:
            (other / "weights").write_text("x")
            assert living.is_dir()
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("keep_existing", [False, True])
def test_a_folder_that_another_process_makes_meanwhile_stays(keep_existing, tmp_path):
    def fill():
        with atomic_dir(tmp_path / "model", keep_existing=keep_existing) as partial:
            (partial / "mine").write_text("x")
            (tmp_path / "model").mkdir()
            (tmp_path / "model" / "theirs").write_text("y")

    if keep_existing:
        fill()
    else:
        with pytest.raises(UserError, match=r"model cannot be written: Directory not empty$"):
            fill()
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["model", "model/theirs"]


def refusal(folder):
    """The reason; the block that would fill the folder is not entered."""
    with pytest.raises(UserError) as caught, atomic_dir(folder):
        pytest.fail("the work began")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_folder_that_is_filled_or_cannot_be_written_is_refused_before_the_work(tmp_path, monkeypatch):
    model, file = tmp_path / "model", tmp_path / "model" / "theirs"
    model.mkdir()
    file.touch()
    assert refusal(model) == f"{model}: not empty; choose another folder"
    assert refusal(file).endswith("not empty; choose another folder")
    assert refusal(file / "new") == f"{file / 'new'} cannot be written: File exists"
    assert refusal(Path("/proc/model")) == "/proc/model cannot be written: No such file or directory"
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert refusal(Path()).startswith(".: a working or mounted folder cannot be replaced; name a new folder")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["empty", "model", "theirs"]


def test_an_empty_folder_is_filled_and_a_link_to_one_stays_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "model").symlink_to(tmp_path / "disk")
    with atomic_dir(tmp_path / "model") as partial:
        (partial / "weights").write_text("x")
    assert (tmp_path / "disk" / "weights").is_file() and (tmp_path / "model").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "model"]


def test_a_failed_write_leaves_the_earlier_file_alone(tmp_path, monkeypatch):
    path = tmp_path / "new" / "facts.json"
    atomic_write(path, json_text({"a": ["ü", None, 1.5]}), "out")

    def full_disk(self, content):
        with self.open("wb") as file:
            file.write(content[:3])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(UserError, match=r"out=.*facts\.json cannot be written: No space left on device"):
        atomic_write(path, "{}", "out")
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": ["ü", None, 1.5]}
    assert list(path.parent.iterdir()) == [path]
