"""`rlvr-vocab samples`, as it is typed."""

import fcntl
import os
import pty
import resource
import select
import shutil
import struct
import sys
import termios
import time

import pytest

from rlvr_vocab.cli import main
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import config_yaml


def test_off_a_terminal_it_is_text(finished_run, capsys):
    assert main(["samples", f"run={finished_run}", "step=50", "verdict=right", "problem=what is 7 +"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"4 completions of {finished_run}: step=50 problem='what is 7 +' verdict=right\n")
    assert [line for line in out.splitlines() if line.startswith("---")] == [
        "--- step 50, completion 57",
        "--- step 50, completion 58",
        "--- step 50, completion 59",
        "--- step 50, completion 60",
    ]
    assert "accuracy: 1: equal" in out and "⟦" in out and "gold answer: 8" in out


@pytest.mark.parametrize(
    ("name", "words", "expected"),
    [
        ("a/b.html", [], "<!DOCTYPE html>"),
        ("b.md", [], "# Completions"),
        ("b.html", ["format=text"], "2 completions of "),
    ],
)
def test_it_is_written_as_the_file_ends_unless_told_otherwise(finished_run, tmp_path, capsys, name, words, expected):
    out = tmp_path / name
    assert main(["samples", f"run={finished_run}", "order=highest", "max_samples=2", f"out={out}", *words]) == 0
    assert out.read_text(encoding="utf-8").startswith(expected)
    assert "tep 50," in out.read_text(encoding="utf-8")
    assert capsys.readouterr().out == f"2 completions are in {out}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["contains=nowhere", "step=3:"], "step=3: contains=nowhere: matches no completion"),
        (["step=ten"], "step=ten: give a step or a range"),
        (["min_reward=2", "max_reward=1"], "min_reward=2 is above max_reward=1"),
        (["verdict=good"], "verdict=good: no such choice"),
        (["out=/proc"], "out=/proc: a folder; give a file"),
        (["out=/proc/version/x.html"], "/proc/version is a file"),
        (["out=/proc/a/x.html", "max_samples=1"], "out=/proc/a/x.html cannot be written"),
    ],
)
def test_what_cannot_be_shown_is_one_clear_line(finished_run, capsys, words, message):
    assert main(["samples", f"run={finished_run}", *words]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.err.count("\n") == 1 and captured.out == ""


@pytest.fixture
def young_run(tmp_path):
    """A run that has logged no step yet."""
    settings = read_settings("train", ["model=tiny"])
    (tmp_path / "config.yaml").write_text(config_yaml(settings.resolved), encoding="utf-8")
    return tmp_path


def test_a_run_without_completions_says_so(young_run, capsys):
    assert main(["samples", f"run={young_run}"]) == 2
    assert "no completions yet (no completions/step_*.parquet)" in capsys.readouterr().err


def test_damaged_files_are_named_and_the_rest_is_shown(young_run, finished_run, capsys):
    (young_run / "completions").mkdir()
    broken = young_run / "completions" / "step_00002.parquet"
    broken.write_bytes(b"PAR1")
    assert main(["samples", f"run={young_run}"]) == 2
    assert "no completion could be read" in capsys.readouterr().err
    shutil.copy(finished_run / "completions" / "step_00001.parquet", young_run / "completions")
    assert main(["samples", f"run={young_run}"]) == 0
    captured = capsys.readouterr()
    assert captured.out.count("--- step 1, completion") == 64
    assert "left out: " in captured.err and "step_00002" in captured.err
    assert "reasoning tokens are not told apart" in captured.err  # there is no initial_model/ here


def test_on_a_terminal_it_opens_at_once_and_every_key_is_answered_at_once(finished_run):
    """Process time of the whole visit, which a machine that is busy with other things stretches less than seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child, terminal = pty.fork()
    if child == 0:
        os.environ["TERM"] = "xterm-256color"
        words = ["samples", f"run={finished_run}"]
        os.execv(sys.executable, [sys.executable, "-m", "rlvr_vocab.cli", *words])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    read_until(terminal, b"1 of 3,200", b"quit", b"gold answer")
    for number in range(2, 12):
        os.write(terminal, b"n")
        read_until(terminal, f"{number} of 3,200".encode())
    os.write(terminal, b"q")
    read_until(terminal, None)
    _, status = os.waitpid(child, 0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert os.waitstatus_to_exitcode(status) == 0
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2.5


def read_until(terminal, *words, seconds=20):
    """Read what the terminal shows until it has shown the words; with None, until there is nothing more."""
    shown, deadline = b"", time.monotonic() + seconds
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                piece = os.read(terminal, 65536)
            except OSError:  # Linux says so at the end of a terminal
                piece = b""
            if not piece:
                return
            shown += piece
        if None not in words and all(word in shown for word in words):
            return
    raise AssertionError(f"not shown within {seconds} s: {words}; but {shown[-3000:]!r}")
