"""The display of a run: steady on a terminal, whole lines elsewhere, and never larger in memory."""

from __future__ import annotations

import fcntl
import io
import os
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from rlvr_vocab.training.display import LiveDisplay, PlainLines, live_display


class PseudoTerminal:
    """`file` is what a program writes to, and `slave` its descriptor."""

    def __init__(self, columns: int = 80) -> None:
        self._master, self.slave = os.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 60, columns, 0, 0))
        self.file = os.fdopen(os.dup(self.slave), "w", encoding="utf-8")
        self._written = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def so_far(self) -> str:
        """What was written until now, with all that was on its way."""
        self.file.flush()
        before = -1
        while before != len(self._written):
            before = len(self._written)
            time.sleep(0.05)
        return bytes(self._written).decode()

    def close(self) -> str:
        self.file.close()
        os.close(self.slave)
        self._reader.join(10)
        os.close(self._master)
        return bytes(self._written).decode()

    def _read(self) -> None:
        try:
            while piece := os.read(self._master, 65_536):
                self._written += piece
        except OSError:  # how a pseudo-terminal says that nobody holds its other end any more
            return


@pytest.fixture(autouse=True)
def a_usual_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def row(step: int, **more: Any) -> dict[str, Any]:
    figures = {"reward": step / 1_000, "groups/reward_std": 0.25, "completions/mean_length": 23.4, "entropy": 0.6}
    return {"step": step, "loss": 0.0, **figures, **more}


def train(display: LiveDisplay, steps: int, first: int = 1) -> None:
    for step in range(first, steps + 1):
        display.row(row(step), step, steps)


def drawn_in(file: Any, monkeypatch: pytest.MonkeyPatch) -> Console:
    """Standard output and errors go where the console writes."""
    monkeypatch.setattr(sys, "stdout", file)
    monkeypatch.setattr(sys, "stderr", file)
    return Console(highlight=False)


def test_the_last_drawing_shows_the_newest_of_everything_and_other_output_stands_above(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = PseudoTerminal(100)
    console = drawn_in(terminal.file, monkeypatch)
    with live_display(console, "GRPO") as display:
        display.begins(0, 60)
        for step in range(1, 61):
            display.row(row(step), step, 60)
            if step == 20:
                print("a print\x1b[5A [/b]")
                display.finding("KL above its limit (step 20)", "kl was 0.7")
            if step == 40:
                print("a warning", file=sys.stderr)
                display.completion(Text("step 40, reward 1.00: ok"))
    plain = re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", terminal.close()).replace("\r", "\n")
    said = [" ".join(line.split()) for line in plain.split("\n") if line.strip()]
    assert said.count("a print [/b]") == said.count("a warning") == 1
    drawing = said[-5:]
    assert drawing[0].startswith("GRPO ") and drawing[0].endswith(" 60/60")
    assert drawing[1].split()[:4] == ["reward", "0.06", "spread", "in"]
    assert drawing[3:] == ["finding KL above its limit (step 20)", "step 40, reward 1.00: ok"]


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    terminal = PseudoTerminal()
    with live_display(drawn_in(terminal.file, monkeypatch), "GRPO") as display:
        train(display, 3)
    written = terminal.close()
    assert "\x1b" not in written and len(written.splitlines()) == 3


def test_a_pipe_gets_one_plain_line_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    reading, writing = os.pipe()
    with os.fdopen(reading) as reader:
        with os.fdopen(writing, "w") as file, live_display(drawn_in(file, monkeypatch), "GRPO") as display:
            display.begins(4, 10)
            display.row(row(5, kl=0.25), 5, 10)
            display.row({"step": 5, "eval/accuracy": 0.5}, 5, 10)
            display.finding("KL above its limit (step 5)", "kl was 0.7")
            display.completion(Text("step 5, reward 1.00: ").append("6*7=42 [/b]", style="bold magenta"))
            display.row(row(10), 10, 10)
        lines = reader.read().splitlines()
    figures = "reward 0.01  spread in groups 0.25"
    assert lines == [
        f"GRPO 5/10  {figures}  length 23  kl 0.250  entropy 0.60  left 0:00",
        "GRPO 5/10  held out 50.0%  left 0:00",
        "finding: KL above its limit (step 5): kl was 0.7",
        "step 5, reward 1.00: 6*7=42 [/b]",
        f"GRPO 10/10  {figures}  held out 50.0% (step 5)  length 23  kl 0.250 (step 5)  entropy 0.60",
    ]


def test_a_log_file_that_cannot_hold_a_character_gets_its_escape() -> None:
    written = io.BytesIO()
    file = io.TextIOWrapper(written, encoding="ascii", write_through=True)
    PlainLines(Console(file=file, width=200), "GRPO").completion(Text("⟦6⟧ × 7"))
    assert written.getvalue() == rb"\u27e66\u27e7 \xd7 7" + b"\n"


_INTERRUPTED = """
import sys, time
from rich.console import Console
from rlvr_vocab.signals import stop_signals
from rlvr_vocab.errors import Interrupted
from rlvr_vocab.training.display import live_display
try:
    with stop_signals.listening():
        stop_signals.defer_signals = FINISHES
        with live_display(Console(), "GRPO") as display:
            print("ready", flush=True)
            time.sleep(20)
except Interrupted as told:
    print("interrupted:", told)
    sys.exit(75)
"""


@pytest.mark.parametrize(("finishes", "code", "last"), [(False, 75, "interrupted: by SIGINT"), (True, 130, "")])
def test_a_signal_gives_the_cursor_back(finishes: bool, code: int, last: str) -> None:
    """Outside of a step the first one ends the run; within a step the second one ends the process at once."""
    terminal = PseudoTerminal()
    words = [sys.executable, "-c", _INTERRUPTED.replace("FINISHES", str(finishes))]
    process = subprocess.Popen(words, stdin=terminal.slave, stdout=terminal.slave, stderr=terminal.slave)
    _wait_for("ready", terminal)
    process.send_signal(signal.SIGINT)
    if finishes:
        _wait_for("SIGINT: stopping after this step", terminal)
        process.send_signal(signal.SIGINT)
    assert process.wait(10) == code
    written = terminal.close()
    hidden, _, shown = written.rpartition("\x1b[?25h")
    assert "\x1b[?25l" in hidden and "\x1b[?25l" not in shown
    assert shown.strip().startswith(last)


def _wait_for(words: str, terminal: PseudoTerminal) -> None:
    deadline = time.monotonic() + 10
    while words not in terminal.so_far():
        assert time.monotonic() < deadline, terminal.so_far()
