"""The display of a run: whole lines and, on a terminal, a bar below them."""

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
from contextlib import suppress

import pytest
from rich.console import Console

from rlvr_vocab.training import display
from rlvr_vocab.training.display import LiveDisplay, live_display


class PseudoTerminal:
    """`file` is what a program writes to, and `slave` its descriptor."""

    def __init__(self, columns=80):
        self._master, self.slave = os.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 60, columns, 0, 0))
        self.file = os.fdopen(os.dup(self.slave), "w", encoding="utf-8")
        self._written = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        with suppress(OSError):  # of a pseudo-terminal whose other end is closed
            while piece := os.read(self._master, 65_536):
                self._written += piece

    def wait_for(self, text):
        deadline = time.monotonic() + 10
        while text not in self._written.decode(errors="replace"):
            assert time.monotonic() < deadline, self._written
            time.sleep(0.05)

    def close(self):
        self.file.close()
        os.close(self.slave)
        self._reader.join(10)
        os.close(self._master)
        return bytes(self._written).decode()


@pytest.fixture(autouse=True)
def a_usual_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def row(step, **more):
    figures = {"reward": step / 1_000, "completions/mean_length": 23.4, "entropy": 0.6}
    return {"step": step, "loss": 0.0, **figures, **more}


def console_on(file, monkeypatch):
    """Standard output and errors go where the console writes."""
    monkeypatch.setattr(sys, "stdout", file)
    monkeypatch.setattr(sys, "stderr", file)
    return Console(highlight=False)


def test_a_terminal_has_a_line_for_each_row_and_a_bar_below_them(monkeypatch):
    terminal = PseudoTerminal(100)
    with live_display(console_on(terminal.file, monkeypatch), "GRPO") as shown:
        shown.begins(0, 60)
        for step in (1, 60):
            shown.row(row(step), step, 60)
        shown.finding("KL above its limit (step 20)", "kl was 0.7 [/b]")
    plain = re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", terminal.close()).replace("\r", "\n")
    lines = [" ".join(line.split()) for line in plain.split("\n") if line.strip()]
    first, last = (next(line for line in lines if line.startswith(f"GRPO {step}/60")) for step in (1, 60))
    assert "reward 0.00 length 23" in first and "reward 0.06" in last
    assert "finding: KL above its limit (step 20): kl was 0.7 [/b]" in lines
    assert lines[-1].startswith("GRPO ━") and lines[-1].endswith(" 60/60")


def test_a_pipe_gets_one_plain_line_a_row(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    written = io.StringIO()
    with live_display(console_on(written, monkeypatch), "GRPO") as shown:
        shown.begins(4, 10)
        shown.row(row(5, kl=0.25, **{"groups/reward_std": 0.1}), 5, 10)
        shown.row({"step": 5, "eval/reward": 3.0, "eval/accuracy": 0.5}, 5, 10)
        shown.finding("KL above its limit (step 5)", "kl was 0.7 [/b]")
        shown.row(row(10, kl=None), 10, 10)
    assert written.getvalue().splitlines() == [
        "GRPO 5/10  reward 0.01  length 23  kl 0.250  entropy 0.60  left 0:00",
        "GRPO 5/10  held out 50.0%  left 0:00",
        "finding: KL above its limit (step 5): kl was 0.7 [/b]",
        "GRPO 10/10  reward 0.01  length 23  entropy 0.60",
    ]


_INTERRUPTED = """
import sys, time
from rich.console import Console
from rlvr_vocab.errors import stop_signals
from rlvr_vocab.errors import Interrupted
from rlvr_vocab.training.display import live_display
try:
    with stop_signals.listening():
        stop_signals.defer_signals = FINISHES
        with live_display(Console(), "GRPO") as display:
            print("ready", flush=True)
            time.sleep(20)
except Interrupted as error:
    print("interrupted:", error)
    sys.exit(75)
"""


@pytest.mark.parametrize(("finishes", "code", "last"), [(False, 75, "interrupted: by SIGINT"), (True, 130, "")])
def test_a_signal_restores_the_cursor(finishes, code, last):
    """Outside of a step the first one ends the run; within a step the second one ends the process at once."""
    terminal = PseudoTerminal()
    command = [sys.executable, "-c", _INTERRUPTED.replace("FINISHES", str(finishes))]
    process = subprocess.Popen(command, stdin=terminal.slave, stdout=terminal.slave, stderr=terminal.slave)
    terminal.wait_for("ready")
    process.send_signal(signal.SIGINT)
    if finishes:
        terminal.wait_for("SIGINT: stopping after this step")
        process.send_signal(signal.SIGINT)
    assert process.wait(10) == code
    hidden, _, shown = terminal.close().rpartition("\x1b[?25h")
    assert "\x1b[?25l" in hidden and "\x1b[?25l" not in shown
    assert shown.strip().startswith(last)


@pytest.fixture
def shown():
    return LiveDisplay(Console(file=io.StringIO()), "GRPO")


def test_a_line_fits_into_100_columns(shown, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    shown.begins(0, 12_000)
    now[0] = 30.0
    shown.row(row(1_234, kl=0.25, **{"rewards/accuracy/mean": 0.5, "completions/mean_length": 1024.0}), 1_234, 12_000)
    line = shown._console.file.getvalue().rstrip()
    assert "left 4:21" in line and len(line) <= 100


def test_the_time_left_is_that_of_the_steps_of_this_process_alone(shown, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    shown.begins(40, 50)
    assert shown.seconds_left() is None
    for step, now[0] in ((41, 103.0), (43, 105.0)):  # 3 s, and twice 1 s
        shown.row({"step": step}, step, 50)
    assert shown.seconds_left() == pytest.approx(7 * 5 / 3)
    now[0] += 2.0
    assert shown.seconds_left() == pytest.approx(7 * 5 / 3 - 2)
    now[0] += 1_000.0
    assert shown.seconds_left() == 0.0
    shown.row({"step": 50}, 50, 50)
    assert shown.seconds_left() is None
