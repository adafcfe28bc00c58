"""Completions of a run are judged with what the run knew: its tags, its limit, the ids of its vocabulary."""

from pathlib import Path

import pytest

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import config_yaml
from rlvr_vocab.rewards.build import RewardContext
from rlvr_vocab.runs.completion_files import context_of
from rlvr_vocab.vocab.layout import VocabLayout

WORDS = ["model=tiny", "dataset=arithmetic", "model.think_tags=['[r]','[/r]']", "training.max_completion_length=48"]
EXPECTED = RewardContext(("[r]", "[/r]"), 100, 7, 8, 48)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run with a staged checkpoint."""
    folder = tmp_path / "out" / "run"
    for model in (folder / "initial_model", folder / "checkpoint-20", folder / "stages" / "1_format" / "checkpoint-20"):
        model.mkdir(parents=True)
        VocabLayout(100, (1, 2, 3), 7, 8, (5,), ()).save(model)
    (folder / "config.yaml").write_text(config_yaml(read_settings("train", WORDS).resolved))
    return folder


@pytest.mark.parametrize(
    "path",
    [
        "completions",
        "completions/step_00010.parquet",
        "evaluation/after.jsonl",
        "checkpoint-20/evaluation/gsm8k/results.jsonl",
        "stages/1_format/checkpoint-20/evaluation/gsm8k/results.jsonl",
    ],
)
def test_what_a_run_left_is_judged_with_what_the_run_knew(run: Path, path: str) -> None:
    assert context_of(run / path) == EXPECTED


def test_a_run_folder_without_its_model_still_knows_tags_and_limit(run: Path) -> None:
    (run / "initial_model" / "reasoning_vocab.json").unlink()
    assert context_of(run / "completions") == RewardContext(("[r]", "[/r]"), max_completion_length=48)


@pytest.mark.parametrize("path", ["samples.jsonl", "completions/mine.csv", "evaluation/mine.csv"])
def test_a_file_that_lies_elsewhere_is_no_runs(path: str, tmp_path: Path) -> None:
    assert context_of(tmp_path / path) is None
    (tmp_path / "config.yaml").write_text("something: else\n")
    assert context_of(tmp_path / "samples.jsonl") is None
