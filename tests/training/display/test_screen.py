"""The lines of the display, for any width."""

import io

import pytest
from rich.console import Console
from rich.text import Text

from rlvr_vocab.training.display import DisplayState, display_lines

FULL = DisplayState(
    "stage 1/2 form",
    step=120,
    steps=200,
    seconds_left=3_725.0,
    metrics={"reward": "0.41", "spread in groups": "0.22", "held out": "45.0% (step 100)", "kl": "0.003"},
    finding="KL above its limit (step 37)",
    completion=Text("step 100, reward 1.00: " + "seven times six " * 60 + "漢字" * 30 + " is 42"),
    notice="SIGINT: stopping after this step",
)
CONSOLE = Console(file=io.StringIO(), width=100)


def shown(state: DisplayState, width: int) -> list[str]:
    return [line.plain for line in display_lines(state, width, CONSOLE)]


@pytest.mark.parametrize("width", [1, 5, 19, 36, 37, 79, 100, 250])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = display_lines(FULL, width, CONSOLE)
    assert max(line.cell_len for line in lines) <= width
    assert not any("\n" in line.plain or line.plain.endswith(" ") for line in lines)


def test_everything_there_is_to_see_of_a_step_is_there() -> None:
    lines = shown(FULL, 99)
    assert lines[0].startswith("stage 1/2 form ━") and lines[0].endswith("─ 120/200  left 1:02:05")
    assert lines[1] == "SIGINT: stopping after this step"
    assert lines[2].split() == ["reward", "0.41", "spread", "in", "groups", "0.22"]
    assert lines[4] == f"{'finding':<18}KL above its limit (step 37)"
    assert lines[5].startswith("step 100, reward 1.00: seven") and lines[-1].endswith("is 42")
    assert any("…" in line for line in lines[5:]) and len(lines[5:]) <= 4


def test_values_are_legible_on_twenty_columns() -> None:
    assert shown(FULL, 20)[2:4] == ["0.41 reward", "0.22 spread in grou…"]


def test_before_the_first_step_there_is_little_to_see() -> None:
    [head, finding] = shown(DisplayState("GRPO"), 80)
    assert head.endswith(" 0/0") and finding.endswith("none so far")
