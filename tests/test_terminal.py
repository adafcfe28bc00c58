"""Progress off a terminal: plain lines, not too many, the last one always."""

import io

from rich.console import Console

from rlvr_vocab import terminal
from rlvr_vocab.terminal import progress_bar


def test_lines_off_a_terminal_are_few_and_end_with_the_last_step():
    out = io.StringIO()
    with progress_bar(Console(file=out, width=200), "GRPO", 50) as display:
        for step in range(1, 51):
            display.update(step, {"reward": f"{step / 100:.2f}"})
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("GRPO 1/50") and lines[-1].startswith("GRPO 50/50")
    assert "reward 0.50" in lines[-1]


def test_the_time_left_is_by_the_pace_since_the_first_update(monkeypatch):
    out, now = io.StringIO(), [100.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    with progress_bar(Console(file=out, width=200), "evaluating", 40) as display:
        for done, now[0] in ((10, 100.0), (20, 130.0), (40, 160.0)):
            display.update(done)
    assert out.getvalue().splitlines() == ["evaluating 10/40", "evaluating 20/40  left 1:00", "evaluating 40/40"]
