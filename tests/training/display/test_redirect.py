"""What is written while a display stands there appears whole, and above it."""

import io
import logging
import os
import sys
from pathlib import Path

import pytest
from rich.console import Console

from rlvr_vocab.training.display import redirecting_output


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminals(monkeypatch: pytest.MonkeyPatch) -> Console:
    """A console on a terminal; standard output and errors are now terminals of their own."""
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setattr(sys, "stderr", Terminal())
    return Console(file=Terminal(), force_terminal=True, color_system="standard", width=20, highlight=False)


def test_whole_lines_reach_the_screen_whatever_is_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_terminals(monkeypatch)
    out = sys.stdout
    with redirecting_output(screen):
        print("half [/b]", end="")
        sys.stdout.flush()
        assert screen.file.getvalue() == ""
        print(" a line that is longer than twenty")
        sys.stderr.write("10 %\r20 %\r\n\x1b[31mred\x1b[0m \x1b[3Aup\nnever ended")
    assert sys.stdout is out
    assert screen.file.getvalue().split("\n") == [
        "half [/b] a line that is longer than twenty",
        "20 %",
        "\x1b[31mred\x1b[0m up",
        "never ended",
        "",
    ]


def test_a_logger_that_holds_the_old_stream_does_not_write_past_the_display(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_terminals(monkeypatch)
    logger, handler = logging.getLogger("rlvr_vocab_test_redirect"), logging.StreamHandler(sys.stderr)
    before, in_use = handler.stream, [handler, logging.lastResort]  # the other has no stream of its own
    monkeypatch.setattr(logger, "handlers", in_use)
    with redirecting_output(screen):
        logger.warning("[b]said[/b]")
    assert screen.file.getvalue() == "[b]said[/b]\n" * 2
    assert before.getvalue() == "" and handler.stream is before


def test_a_stream_that_goes_to_a_file_goes_there(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_terminals(monkeypatch)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with redirecting_output(screen):
        sys.stderr.write("an error\n")
        print("a line")
    assert sys.stderr.getvalue() == "an error\n" and screen.file.getvalue() == "a line\n"


def test_a_forked_process_writes_where_it_always_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_terminals(monkeypatch)
    with (tmp_path / "written").open("w") as file:
        terminal = Terminal()
        terminal.write = file.write  # type: ignore[method-assign]
        terminal.flush = file.flush  # type: ignore[method-assign]
        monkeypatch.setattr(sys, "stdout", terminal)
        with redirecting_output(screen):
            child = os.fork()
            if child == 0:
                print("of the child", flush=True)
                os._exit(0)
            os.waitpid(child, 0)
    assert (tmp_path / "written").read_text() == "of the child\n" and screen.file.getvalue() == ""
