"""`deadline` beside a reward's name, from the configuration to the function, in training and in `rlvr-vocab score`."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlvr_vocab.cli import main
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.build import RewardContext, build_rewards

SOURCE = """
import time

def slow(completions, **columns):
    time.sleep(1.0)
    return [1.0] * len(completions)
"""


@pytest.fixture
def slow(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(SOURCE)
    return f"{tmp_path / 'mine.py'}:slow"


def run_with(functions: str) -> RunSettings:
    settings = read_settings("train", ["model=tiny", "dataset=arithmetic", f"rewards.functions={functions}"])
    assert isinstance(settings, RunSettings)
    return settings


@pytest.mark.parametrize(
    ("written", "recorded", "seconds"),
    [("", "auto", 300), (",deadline:auto", "auto", 300), (",deadline:5", 5, 5), (",deadline:null", None, None)],
)
def test_a_deadline_reaches_the_function_and_is_recorded_as_it_was_written(
    slow: str, written: str, recorded: Any, seconds: Any
) -> None:
    settings = run_with(f"[{{name:'{slow}'{written}}}]")
    [reward] = build_rewards(settings.rewards.functions, RewardContext())
    assert reward.deadline == seconds
    assert settings.resolved["rewards"]["functions"][0]["deadline"] == recorded


def test_a_deadline_that_is_no_number_is_refused(slow: str) -> None:
    with pytest.raises(UserError, match="deadline=soon: should be 'auto' or should be a valid number"):
        run_with(f"[{{name:'{slow}',deadline:soon}}]")


def test_score_gives_a_late_function_up_and_shows_its_rows_as_failed(
    slow: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = tmp_path / "samples.jsonl"
    samples.write_text(json.dumps({"prompt": "6*7?", "completion": "\\boxed{42}", "solution": "42"}) + "\n")
    words = ["score", f"rewards=[{{name:'{slow}',deadline:0.1}},boxed]", f"completions={samples}"]
    assert main(words) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "had not returned by its deadline of 0.1 seconds" in shown
    assert main([words[0], words[1].replace("0.1", "60"), words[2]]) == 0
