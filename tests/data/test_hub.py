"""Sets that the datasets library reads: a folder works, a failure is one line."""

from collections.abc import Callable
from pathlib import Path

import datasets
import pytest

from rlvr_vocab.data.load import hub_rows
from rlvr_vocab.errors import UserError


@pytest.fixture(autouse=True)
def cache_and_no_network(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture
def folder(write_jsonl: Callable[..., Path]) -> Path:
    write_jsonl({"problem": "1+1=", "answer": 2}, name="train.jsonl")
    return write_jsonl({"problem": "2+2=", "answer": 4}, name="test.jsonl").parent


def test_a_folder_is_read_split_by_split(folder: Path) -> None:
    assert hub_rows(str(folder), None, "train") == [{"problem": "1+1=", "answer": 2}]
    assert hub_rows(str(folder), None, "test") == [{"problem": "2+2=", "answer": 4}]


def test_a_folder_below_home_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder.parent))
    assert hub_rows(f"~/{folder.name}", None, "train") == [{"problem": "1+1=", "answer": 2}]


def test_a_missing_split_is_one_line_with_the_splits_there_are(folder: Path) -> None:
    with pytest.raises(UserError, match=r"split validation.*Should be one of \['train', 'test'\]") as caught:
        hub_rows(str(folder), None, "validation")
    assert "\n" not in str(caught.value)


def test_a_missing_configuration_is_one_line_with_those_there_are(folder: Path) -> None:
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: main\n  data_files: train.jsonl\n"
        "- config_name: socratic\n  data_files: test.jsonl\n---\n"
    )
    with pytest.raises(UserError, match=r"main.*socratic") as caught:
        hub_rows(str(folder), None, "train")
    assert "\n" not in str(caught.value)
    assert hub_rows(str(folder), "socratic", "train") == [{"problem": "2+2=", "answer": 4}]


def test_a_set_out_of_reach_is_one_line_with_the_way_to_a_local_file() -> None:
    with pytest.raises(UserError) as caught:
        hub_rows("no-such-org/no-such-set", "main", "train")
    message = str(caught.value)
    assert message.startswith("dataset no-such-org/no-such-set (configuration main, split train)")
    assert message.endswith("to read a local file, set dataset=local dataset.name=FILE")
    assert "Couldn't reach" in message
    assert "\n" not in message
