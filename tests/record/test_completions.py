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
            "sampling_logps": [[-1.0, -2.0], []],
            "sampling_entropies": [[1.0, 2.0], []],
            "sampling_copy_entropies": [[0.5, 0.0], []],
            "sampling_choice_bits": [[0.25, 0.0], []],
        }
    ).to_parquet(tmp_path / "step_00007.parquet", index=False)
    return tmp_path


def test_a_step_is_read_as_it_was_written(folder):
    first, second = CompletionFiles(folder).read(7)
    assert first == SampledCompletion(
        7, 1, "p", "one", "1", 1.0, 0.5, {"accuracy": 1.0}, {"accuracy": "equal"}, [1], [3, 4], [0.25, 0.0]
    )
    told = [name for name in CompletionFiles(folder).table(7).column_names if name.startswith("sampling")]
    assert told == ["sampling_choice_bits"]
    assert (second.row, second.solution, dict(second.rewards), dict(second.reasons)) == (2, "", {"accuracy": None}, {})


def test_one_row_is_the_same_as_in_the_whole_step(folder):
    files = CompletionFiles(folder)
    assert files.read_row(7, 2) == files.read(7)[1]


def test_steps_are_in_the_order_of_their_numbers_and_other_files_are_none(folder):
    content = (folder / "step_00007.parquet").read_bytes()
    for name in ("step_100000.parquet", "step_00012.parquet", "completions_00001.parquet", "step_x.parquet"):
        (folder / name).write_bytes(content)
    assert CompletionFiles(folder).steps == [7, 12, 100_000]


@pytest.mark.parametrize("damage", [lambda content: content[:100], lambda content: b"", lambda content: b"PAR1" * 9])
def test_a_damaged_file_is_one_clear_line(folder, damage):
    path = folder / "step_00007.parquet"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=r"step_00007.parquet: cannot be read"):
        CompletionFiles(folder).read(7)


def test_a_file_that_goes_away_is_one_clear_line(folder):
    files = CompletionFiles(folder)
    (folder / "step_00007.parquet").unlink()
    with pytest.raises(UserError, match="cannot be read"):
        files.read(7)


def test_a_folder_that_is_not_there_has_no_steps(tmp_path):
    assert CompletionFiles(tmp_path / "completions").steps == []
