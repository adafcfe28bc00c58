"""The summary on the screen: the outcome, failures of rewards, findings, and a sampled answer."""

import io
import shlex
from pathlib import Path

import pytest
from rich.console import Console

from rlvr_vocab.config.command_settings import COMMANDS
from rlvr_vocab.config.values import keys_of
from rlvr_vocab.runs.summary import next_commands, print_summary

SUMMARY = {
    "accuracy_before": 0.25,
    "accuracy_after": 0.5,
    "held_out_problems": 8,
    "reward_std_before": 0.45,
    "reward_std_after": 0.5,
    "steps": 4,
    "grpo_seconds": 3.0,
    "seconds": 5.0,
    "sample": None,
}


def screen(colour=False, **more):
    file = io.StringIO()
    system = "standard" if colour else None
    console = Console(file=file, width=1_000, highlight=False, force_terminal=colour, color_system=system)
    print_summary({**SUMMARY, **more}, Path("runs/a"), console)
    return file.getvalue().splitlines()


def test_failed_rewards_and_findings_are_named():
    found = [{"title": "KL [above] its limit", "step": 37}]
    lines = screen(reward_failures={"mine": 1_200, "[bold]": 1}, findings=found)[2:5]
    assert lines[0].startswith("reward mine failed on 1,200 completions")
    assert lines[1].startswith("reward [bold] failed on 1 completion,")
    assert lines[2] == "finding: KL [above] its limit (step 37)"


def test_the_sample_is_marked_where_no_colour_can_show_it_and_moves_no_cursor():
    sample = {"problem": "6*7", "solution": "42", "stretches": [("<think>\n\x1b[2J6", 0), ("*7", 1)]}
    assert screen(sample=sample)[4:6] == ["  <think>", "␛[2J6⟦*7⟧"]
    coloured = "\n".join(screen(colour=True, sample=sample))
    assert "⟦" not in coloured and "\x1b[2J" not in coloured


MODEL = "final_model/manifest.json"
GAINED = {"accuracy_before": 0.2, "accuracy_after": 0.6, "held_out_problems": 200}


@pytest.mark.parametrize(
    ("summary", "files", "expected"),
    [
        (GAINED, (MODEL,), ["generate", "report"]),
        (GAINED | {"reasoning_vocab_size": 9}, (MODEL, "trackers.json"), ["generate", "probe"]),
        (GAINED | {"findings": [{}]}, ("final_adapter/x", MODEL), ["doctor", "generate", "merge"]),
        (GAINED, ("trackers.json",), ["report"]),  # from Python
        ({"accuracy_after": 0.3}, (), ["samples", "report"]),  # 8 problems: chance
        ({"accuracy_before": None, "findings": [{}], "held_out_problems": 0}, (), ["doctor", "samples", "report"]),
    ],
)
def test_the_next_commands_fit_what_happened(tmp_path, summary, files, expected):
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    commands = [shlex.split(line, comments=True) for line in next_commands({**SUMMARY, **summary}, tmp_path)]
    assert [words[1] for words in commands] == expected
    for _, command, *words in commands:
        assert {word.partition("=")[0] for word in words} <= set(keys_of(COMMANDS[command].settings))
