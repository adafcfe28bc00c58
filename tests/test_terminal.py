"""Progress off a terminal: plain lines, not too many, the last one always."""

import io

from rich.console import Console

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
