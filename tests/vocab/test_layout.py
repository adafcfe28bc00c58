"""`reasoning_vocab.json`: what is written is what is read, and what cannot be read is said in one line."""

import json

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.layout import VocabLayout, default_source_ids


def make_layout(sources=(), **fields):
    return VocabLayout(
        **{
            "standard_size": 10,
            "source_ids": tuple(sources),
            "think_open_id": 7,
            "think_close_id": 8,
            "turn_ids": (5, 6),
            "control_ids": (7, 8, 9),
            **fields,
        }
    )


@pytest.mark.parametrize(
    ("sources", "on_disk"),
    [
        ((), []),
        ((0, 1, 2, 3), {"range": [0, 4]}),
        ((3,), {"range": [3, 4]}),
        ((0, 0, 1), [0, 0, 1]),
        ((2, 1, 0), [2, 1, 0]),
        ((*range(10), *range(10)), [*range(10), *range(10)]),
    ],
)
def test_a_layout_is_read_as_it_was_written(tmp_path, sources, on_disk):
    layout = make_layout(sources, mode="replace", preserve_odds=False)
    layout.save(tmp_path)
    content = json.loads((tmp_path / "reasoning_vocab.json").read_text())
    assert content["version"] == 1 and content["source_ids"] == on_disk
    assert VocabLayout.load(tmp_path) == layout


def test_the_file_is_the_one_that_the_design_shows(tmp_path):
    shown = {
        "version": 1,
        "standard_size": 10,
        "source_ids": {"range": [0, 10]},
        "think_open_id": 7,
        "think_close_id": 8,
        "turn_ids": [5, 6],
        "control_ids": [7, 8, 9],
        "mode": "expand",
        "preserve_odds": True,
    }
    make_layout(range(10)).save(tmp_path)
    assert json.loads((tmp_path / "reasoning_vocab.json").read_text()) == shown


def _with(**changes):
    content = {
        "version": 1,
        "standard_size": 10,
        "source_ids": [1],
        "think_open_id": 7,
        "think_close_id": 8,
        "turn_ids": [],
        "control_ids": [],
        **changes,
    }
    return json.dumps({key: value for key, value in content.items() if value is not ...})


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (None, "reasoning_vocab.json"),
        ("{", "reasoning_vocab.json"),
        ("[1]", "reasoning_vocab.json"),
        (_with(version=2), "version 2"),
        (_with(standard_size=...), "standard_size"),
        (_with(unknown=1), "unknown"),
        (_with(source_ids=[10]), "source id 10"),
        (_with(source_ids=["a"]), "reasoning_vocab.json"),
        (_with(source_ids={"range": [0]}), "reasoning_vocab.json"),
        (_with(turn_ids=3), "reasoning_vocab.json"),
        (_with(mode="swap"), "swap"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_in_one_line(tmp_path, text, word):
    if text is not None:
        (tmp_path / "reasoning_vocab.json").write_text(text)
    with pytest.raises(UserError, match=word) as error:
        VocabLayout.load(tmp_path)
    assert "\n" not in str(error.value)


def test_each_copy_knows_which_one_of_its_source_it_is():
    layout = make_layout((3, 4, 3, 3, 4))
    assert layout.copy_indices == (1, 1, 2, 3, 2)
    assert (layout.size, layout.rows) == (5, 15)


def test_default_sources_run_through_the_vocabulary_again_and_again():
    assert default_source_ids(5, standard_size=3, multiplicity=2) == (0, 1, 2, 0, 1)
    assert default_source_ids(0, 3, 1) == ()
    assert default_source_ids(6, 3, 2) == (0, 1, 2, 0, 1, 2)
