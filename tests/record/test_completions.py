"""Completions are read a step at a time, as they were written, and a damaged file is one clear line."""

import math

import pandas as pd
import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.record.completions import CompletionFiles, SampledCompletion


@pytest.fixture
def folder(tmp_path):
    pd.DataFrame(
        {
            "step": 7,
            "prompt": ["p", "q"],
            "completion": ["one", "two"],
            "prompt_ids": [[1], [2]],
            "completion_ids": [[3, 4], []],
            "solution": ["1", None],
            "advantage": [0.5, -0.5],
            "reward": [1.0, 0.0],
            "reward/accuracy": [1.0, math.nan],
            "reason/accuracy": ["equal", ""],
        }
    ).to_parquet(tmp_path / "step_00007.parquet", index=False)
    return tmp_path


def test_a_step_is_read_as_it_was_written(folder):
    first, second = CompletionFiles(folder).read(7)
    assert first == SampledCompletion(
        7, 1, "p", "one", "1", 1.0, 0.5, {"accuracy": 1.0}, {"accuracy": "equal"}, [1], [3, 4]
    )
    assert (second.row, second.solution, dict(second.rewards), dict(second.reasons)) == (2, "", {"accuracy": None}, {})


def test_steps_are_in_the_order_of_their_numbers_and_other_files_are_none(folder):
    content = (folder / "step_00007.parquet").read_bytes()
    for name in ("step_100000.parquet", "step_00012.parquet", "completions_00001.parquet", "step_x.parquet"):
        (folder / name).write_bytes(content)
    assert CompletionFiles(folder).steps == [7, 12, 100_000]


@pytest.mark.parametrize("content", [b"", b"PAR1" * 9])
def test_a_damaged_file_is_one_clear_line(folder, content):
    (folder / "step_00007.parquet").write_bytes(content)
    with pytest.raises(UserError, match=r"step_00007.parquet: cannot be read"):
        CompletionFiles(folder).read(7)
