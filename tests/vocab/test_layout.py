"""`reasoning_vocab.json`: what is written is what is read, and what cannot be read is said in one line."""

import json

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.layout import VocabLayout

FILE = {
    "version": 1,
    "standard_size": 10,
    "source_ids": [1],
    "think_open_id": 7,
    "think_close_id": 8,
    "turn_ids": [5, 6],
    "control_ids": [7, 8, 9],
    "mode": "replace",
    "preserve_odds": False,
}


def make_layout(sources):
    return VocabLayout(10, tuple(sources), 7, 8, (5, 6), (7, 8, 9), "replace", False)


@pytest.mark.parametrize(
    ("sources", "on_disk"),
    [
        ((), []),
        ((0, 1, 2, 3), {"range": [0, 4]}),
        ((0, 0, 1), [0, 0, 1]),
        ((*range(10), *range(10)), [*range(10), *range(10)]),
    ],
)
def test_a_layout_is_read_as_it_was_written(tmp_path, sources, on_disk):
    make_layout(sources).save(tmp_path)
    assert json.loads((tmp_path / "reasoning_vocab.json").read_text()) == {**FILE, "source_ids": on_disk}
    assert VocabLayout.load(tmp_path) == make_layout(sources)


def _with(**changes):
    return json.dumps({key: value for key, value in {**FILE, **changes}.items() if value is not ...})


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (None, "reasoning_vocab.json"),
        (_with(version=2), "version 2"),
        (_with(standard_size=...), "standard_size"),
        (_with(unknown=1), "unknown"),
        (_with(source_ids=[10]), "source id 10"),
        (_with(mode="swap"), "swap"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_in_one_line(tmp_path, text, word):
    if text is not None:
        (tmp_path / "reasoning_vocab.json").write_text(text)
    with pytest.raises(UserError, match=word) as error:
        VocabLayout.load(tmp_path)
    assert "\n" not in str(error.value)
