"""The last words of a run tell what it achieved, and where a reward function failed."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rlvr_vocab.runs.closing_screen import print_summary

SUMMARY = {
    "accuracy_before": 0.25,
    "accuracy_after": 0.5,
    "held_out_problems": 8,
    "steps": 4,
    "grpo_seconds": 3.0,
    "seconds": 5.0,
    "steps_without_signal": 0,
    "sample": None,
}


def words(colour: bool = False, **more: Any) -> list[str]:
    screen = io.StringIO()
    console = Console(
        file=screen, width=1_000, highlight=False, force_terminal=colour, color_system="standard" if colour else None
    )
    print_summary({**SUMMARY, **more}, Path("runs/a"), console)
    return screen.getvalue().splitlines()


def test_each_reward_that_failed_on_rows_is_named_in_yellow() -> None:
    failed = [line for line in words(reward_failures={"mine": 1_200, "[bold]": 1}) if line.startswith("reward ")]
    assert failed == [
        "reward mine failed on 1,200 completions, without a score from it: rewards/mine/failures in metrics.jsonl",
        "reward [bold] failed on 1 completion, without a score from it: rewards/[bold]/failures in metrics.jsonl",
    ]
    assert any(line.startswith("\x1b[33mreward mine") for line in words(colour=True, reward_failures={"mine": 2}))


@pytest.mark.parametrize("more", [{}, {"reward_failures": {}}])
def test_nothing_is_said_of_failures_where_there_were_none(more: dict[str, Any]) -> None:
    shown = words(**more)
    assert not any("failed" in line for line in shown)
    assert shown[1] == ("held-out accuracy on 8 problems: 25.0% before GRPO, 50.0% after (+25.0 points, 4 steps, 3 s)")


def test_each_finding_has_a_line_with_the_command_that_tells_more() -> None:
    found = [{"title": "KL [above] its limit", "step": 37}, {"title": "The reward does not rise", "step": 40}]
    shown = [line for line in words(findings=found) if line.startswith("finding: ")]
    assert [line.rpartition(": ")[0] for line in shown] == [
        "finding: KL [above] its limit (step 37)",
        "finding: The reward does not rise (step 40)",
    ]
    assert all(line.endswith("rlvr-vocab doctor run=runs/a") for line in shown)
    assert not any(line.startswith("finding") for line in words())


def test_the_sample_is_marked_where_no_colour_can_show_it_and_moves_no_cursor() -> None:
    sample = {"problem": "6*7", "solution": "42", "stretches": [("<think>\n\x1b[2J6", 0), ("*7", 1)]}
    assert words(sample=sample)[4:6] == ["  <think>", r"\x1b[2J6⟦*7⟧"]
    coloured = "\n".join(words(colour=True, sample=sample))
    assert "in colour" in coloured and "⟦" not in coloured and "\x1b[2J" not in coloured
