"""The display of a run: whole lines and, on a terminal, a bar below them."""

import io
import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest
from rich.console import Console

from rlvr_vocab.training import display
from rlvr_vocab.training.display import LiveDisplay, live_display


@pytest.fixture(autouse=True)
def a_usual_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def row(step, **more):
    return {"step": step, "reward": step / 1_000, "completions/mean_length": 23.4, "entropy": 0.6, **more}


def test_a_pipe_gets_one_plain_line_a_row(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    written = io.StringIO()
    with live_display(Console(file=written, highlight=False), "GRPO") as shown:
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
    master, slave = os.openpty()
    command, written = [sys.executable, "-c", _INTERRUPTED.replace("FINISHES", str(finishes))], ""

    def read_until(text):
        nonlocal written
        with suppress(OSError):  # of a pseudo-terminal whose other end is closed
            while text not in written:
                written += os.read(master, 65_536).decode()

    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        read_until("ready")
        process.send_signal(signal.SIGINT)
        if finishes:
            read_until("SIGINT: stopping after this step")
            process.send_signal(signal.SIGINT)
        read_until("the end")
        assert process.wait(10) == code
    os.close(master)
    hidden, _, shown = written.rpartition("\x1b[?25h")
    assert "\x1b[?25l" in hidden and "\x1b[?25l" not in shown
    assert shown.strip().startswith(last)


def display_in_a_pipe():
    return LiveDisplay(Console(file=io.StringIO(), width=200), "GRPO", lambda: "generation")


@pytest.fixture
def at(monkeypatch):
    """Sets the clock."""
    now = [0.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    return lambda seconds: now.__setitem__(0, seconds)


def test_the_time_left_is_that_of_the_steps_of_this_process_alone(at):
    shown = display_in_a_pipe()
    shown.begins(40, 50)
    assert shown.seconds_left() is None
    for step, now in ((41, 3.0), (43, 5.0)):  # 3 s, and twice 1 s
        at(now)
        shown.row({"step": step}, step, 50)
    assert shown.seconds_left() == pytest.approx(7 * 5 / 3)
    at(7.0)
    assert shown.seconds_left() == pytest.approx(7 * 5 / 3 - 2)
    at(1_000.0)
    assert shown.seconds_left() == 0.0
    shown.row({"step": 50}, 50, 50)
    assert shown.seconds_left() is None


class Waits:
    """Lets a second pass with each look, `count` times; a signal comes at second `signalled`."""

    def __init__(self, at, first, count, signalled=None):
        self.at, self.now, self.end, self.signalled = at, first, first + count, signalled

    def wait(self, seconds):
        self.now += 1
        self.at(self.now)
        if self.now == self.signalled:
            display.stop_signals.reason = "SIGTERM"
        return self.now >= self.end


def test_a_long_step_shows_its_phase_each_minute_where_no_line_can_be_redrawn(at):
    shown = display_in_a_pipe()
    shown.begins(0, 60)
    for begins, seconds in ((0.0, 25), (25.0, 155)):
        at(begins)
        shown.step_begins()
        shown.print_signs(Waits(at, begins, seconds))
    assert shown._console.file.getvalue().splitlines() == [
        f"GRPO 0/60  generation, {time} in this step" for time in ("0:30", "1:30", "2:30")
    ]
    assert " generation, 2:35 in" in "".join(segment.text for segment in Console(width=99).render(shown.bar()))


def test_a_signal_is_answered_at_once_with_the_rest_of_the_step(at, monkeypatch):
    monkeypatch.setattr(display.stop_signals, "reason", None)
    shown = display_in_a_pipe()
    shown.begins(0, 60)
    at(50.0)
    shown.row({}, 1, 60)
    shown.step_begins()
    shown._console.file.truncate(0)
    shown._console.file.seek(0)
    shown.print_signs(Waits(at, 50.0, 29, signalled=58))
    assert shown._console.file.getvalue() == (
        "SIGTERM: stopping after this step, about 42 s; a second signal ends at once\n"
    )
