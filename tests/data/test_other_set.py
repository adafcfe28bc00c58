"""A set to compare with is read for its problems alone."""

from collections.abc import Callable
from pathlib import Path

import datasets
import pytest

from rlvr_vocab.data.overlap import OtherSet, check_other_set, read_other_set
from rlvr_vocab.errors import UserError

WriteJsonl = Callable[..., Path]


def test_texts_come_with_their_row_numbers_and_need_no_answer(write_jsonl: WriteJsonl) -> None:
    rows = [{"question": "a"}, {"question": " "}, 5, {"other": 1}, {"question": 17}, {"question": "b\ud800"}]
    found = read_other_set(OtherSet(str(write_jsonl(*rows)), "question"))
    assert [tuple(text) for text in found] == [(1, "a"), (5, "17"), (6, "b\ufffd")]


def test_a_folder_is_read_by_its_split(
    write_jsonl: WriteJsonl, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
    write_jsonl({"q": "trained"}, name="train.jsonl")
    folder = write_jsonl({"q": "tested"}, name="test.jsonl").parent
    assert [text for _, text in read_other_set(OtherSet(str(folder), "q"))] == ["tested"]
    assert [text for _, text in read_other_set(OtherSet(str(folder), "q", split="train"))] == ["trained"]


@pytest.mark.parametrize("read", [check_other_set, read_other_set])
def test_a_missing_column_names_those_there_are_and_the_key(
    read: Callable[[OtherSet], object], write_jsonl: WriteJsonl
) -> None:
    path = write_jsonl({"question": "a", "answer": 1})
    with pytest.raises(UserError) as caught:
        read(OtherSet(str(path), "problem"))
    assert str(caught.value) == (
        f'{path} has no column "problem"; its columns are question, answer;'
        " name the column of its problems with against_problem_column"
    )


@pytest.mark.parametrize("read", [check_other_set, read_other_set])
def test_a_file_without_rows_or_not_there_is_refused(read: Callable[[OtherSet], object], tmp_path: Path) -> None:
    (tmp_path / "no_rows.json").write_text("[]")
    with pytest.raises(UserError, match="has no rows"):
        read(OtherSet(str(tmp_path / "no_rows.json"), "q"))
    with pytest.raises(UserError, match="does not exist"):
        read(OtherSet(str(tmp_path / "nowhere.jsonl"), "q"))


def test_a_file_whose_problems_are_all_empty_is_refused(write_jsonl: WriteJsonl) -> None:
    with pytest.raises(UserError, match='has no problem in its column "q"'):
        read_other_set(OtherSet(str(write_jsonl({"q": ""}, {"q": None})), "q"))


def test_checking_does_not_look_a_hub_set_up() -> None:
    check_other_set(OtherSet("no-such-org/no-such-set", "q"))
