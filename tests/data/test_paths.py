"""File names are told from hub names, and a wrong one gets a helpful answer."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rlvr_vocab.data.files import local_file
from rlvr_vocab.errors import UserError

Write = Callable[[str, str | bytes], Path]


@pytest.mark.parametrize("name", ["openai/gsm8k", "agentica-org/DeepScaleR-Preview-Dataset", "org/v1.5", "gsm8k"])
def test_a_hub_name_is_no_file(name: str) -> None:
    assert local_file(name) is None


def test_a_folder_is_left_to_the_datasets_library(tmp_path: Path) -> None:
    assert local_file(str(tmp_path)) is None


@pytest.mark.parametrize("name", ["p.csv", "p.tsv", "p.json", "p.jsonl", "p.parquet", "P.JSON"])
def test_a_file_of_a_known_kind_is_found(write: Write, name: str) -> None:
    path = write(name, "x")
    assert local_file(str(path)) == path


def test_a_tilde_stands_for_the_home_folder(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("p.csv", "x")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert local_file("~/p.csv") == path


def test_a_missing_file_is_named_absolutely_with_the_nearest_in_its_folder(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("gsm8k_train.jsonl", "x")
    write("other.csv", "x")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        local_file("gsm8k_trian.jsonl")
    expected = f"data file {tmp_path}/gsm8k_trian.jsonl does not exist; the nearest file there is gsm8k_train.jsonl"
    assert str(caught.value) == expected


def test_a_missing_file_like_no_other_gets_a_list_of_those_there_are(write: Write, tmp_path: Path) -> None:
    for letter in "abcdefg":
        write(f"{letter * 9}.csv", "x")
    write("notes.txt", "x")
    with pytest.raises(UserError, match=r"its folder holds aaaaaaaaa\.csv, .*eeeeeeeee\.csv and 2 more$"):
        local_file(str(tmp_path / "qqqqqqqqqqqqqqqqqqqqqqqq.json"))


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "~/nowhere-at-all", "nowhere.parquet"])
def test_what_looks_like_a_path_is_never_looked_up_on_the_hub(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"data file /.* does not exist; its folder "):
        local_file(name)


def test_the_home_of_nobody_is_refused() -> None:
    with pytest.raises(UserError, match=r"~no-such-user-here/p\.csv has no place on this machine"):
        local_file("~no-such-user-here/p.csv")


def test_an_unknown_extension_is_refused(write: Write) -> None:
    with pytest.raises(UserError, match=r'p\.txt has the extension "\.txt"; it must be one of \.csv, '):
        local_file(str(write("p.txt", "x")))


def test_an_empty_file_is_refused(write: Write) -> None:
    with pytest.raises(UserError, match=r"p\.json is empty"):
        local_file(str(write("p.json", "")))
