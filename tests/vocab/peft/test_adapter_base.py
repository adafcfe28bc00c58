"""An adapter finds the model it was trained on where a run has put it, and takes no other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.peft.adapter import load_model
from rlvr_vocab.vocab.peft.adapter_base import BASE_RECORD, find_base, folder_with
from rlvr_vocab.vocab.peft.merge import merge_adapter

CONFIG = "adapter_config.json"


@pytest.fixture
def base(expand_shape: Callable[..., Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(expand_shape("llama", size=20), tmp_path / "base"))


@pytest.fixture
def adapter(base: Path, make_adapter: Callable[..., Path]) -> Path:
    return make_adapter(base, "reasoning")


def with_other_weights(base: Path, copy: Path) -> Path:
    """A model of the same shape and vocabulary, in which one layer has moved."""
    shutil.copytree(base, copy)
    tensors = load_file(copy / "model.safetensors")
    tensors["model.layers.0.self_attn.q_proj.weight"] += 1e-3
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    return copy


def edit(adapter: Path, **changes: Any) -> None:
    config = json.loads((adapter / CONFIG).read_text())
    (adapter / CONFIG).write_text(json.dumps({**config, **changes}))


def moved(adapter: Path, place: Path) -> Path:
    edit(adapter, base_model_name_or_path="where/it/was/trained")
    return Path(shutil.copytree(adapter, place))


@pytest.mark.parametrize("place", ["final_adapter", "checkpoint-20", "stages/1_format/checkpoint-3"])
def test_in_the_folder_of_a_run_that_was_moved_it_is_the_initial_model(place: str, adapter: Path, base: Path) -> None:
    run = base.parent / "run"
    initial = Path(shutil.copytree(base, run / "initial_model"))
    assert find_base(moved(adapter, run / place)) == initial


@pytest.mark.parametrize("place", ["adapter", "deep/below/checkpoint-20"])
def test_an_initial_model_around_a_place_where_no_run_puts_adapters_is_not_taken(
    place: str, adapter: Path, base: Path
) -> None:
    run = base.parent / "run"
    shutil.copytree(base, run / "initial_model")
    with pytest.raises(UserError, match="its base where/it/was/trained is not there"):
        find_base(moved(adapter, run / place))


def test_the_model_that_the_adapter_names_comes_before_that_of_the_run_around_it(adapter: Path, base: Path) -> None:
    run = base.parent / "run"
    shutil.copytree(base, run / "initial_model")
    assert find_base(shutil.copytree(adapter, run / "final_adapter")) == base


def test_another_model_in_the_place_of_the_base_is_refused_by_its_weights(adapter: Path, base: Path) -> None:
    other = with_other_weights(base, base.parent / "other")
    message = f"{other} has other weights than the model that {adapter} was trained on: give that one as base=…"
    for find in (find_base, load_model):
        with pytest.raises(UserError) as caught:
            find(adapter, other)
        assert str(caught.value) == message
    edit(adapter, base_model_name_or_path=str(other))
    with pytest.raises(UserError, match="has other weights than the model"):
        find_base(adapter)
    assert find_base(adapter, base) == base


def test_where_another_model_has_come_where_the_run_was_trained_that_of_the_run_is_taken(
    adapter: Path, base: Path
) -> None:
    run = base.parent / "run"
    initial = Path(shutil.copytree(base, run / "initial_model"))
    edit(adapter, base_model_name_or_path=str(with_other_weights(base, base.parent / "other")))
    assert find_base(shutil.copytree(adapter, run / "final_adapter")) == initial


def test_an_adapter_of_another_tool_takes_any_base_of_its_vocabulary(adapter: Path, base: Path) -> None:
    (adapter / BASE_RECORD).unlink()
    other = with_other_weights(base, base.parent / "other")
    assert find_base(adapter, other) == other


def test_what_an_adapter_of_another_tool_came_without_is_read_from_its_base(adapter: Path, base: Path) -> None:
    name = "reasoning_vocab.json"
    assert folder_with(name, adapter) == adapter and folder_with(name, base) == base
    (adapter / name).unlink()
    (base / "tokenizer.json").unlink()
    assert folder_with(name, adapter) == base and folder_with("tokenizer.json", base) == base


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"peft_type": None}, "peft_type is None"),
        ({"peft_type": "TELEPATHY"}, "KeyError: 'TELEPATHY'"),
        ({"r": "x"}, "TypeError: "),
        ({"target_modules": ["nowhere"]}, "Target modules"),
    ],
)
def test_a_broken_configuration_is_one_line(changes: dict[str, Any], reason: str, adapter: Path, base: Path) -> None:
    edit(adapter, **changes)
    out = base.parent / "out"
    for open_it in (lambda: load_model(adapter), lambda: merge_adapter(adapter, out)):
        with pytest.raises(UserError) as caught:
            open_it()
        message = str(caught.value)
        assert message.startswith(str(adapter)) and reason in message and "\n" not in message
    assert not out.exists()


@pytest.mark.parametrize("recorded", [True, False])
def test_a_base_whose_weights_are_cut_short_is_one_line(recorded: bool, adapter: Path, base: Path) -> None:
    if not recorded:
        (adapter / BASE_RECORD).unlink()
    weights = base / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    for folder in (adapter, base) if not recorded else (adapter,):
        with pytest.raises(UserError, match="cannot be read") as caught:
            load_model(folder)
        assert str(base) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("change", ["a tensor is missing", "a tensor too many", "a tensor of another shape"])
def test_an_adapter_that_does_not_fit_its_base_is_refused(change: str, base: Path, adapter: Path) -> None:
    path = adapter / "adapter_model.safetensors"
    tensors = load_file(path)
    name = next(name for name in tensors if name.endswith("q_proj.lora_A.weight"))
    if change == "a tensor of another shape":
        tensors[name] = tensors[name][:, :-1].clone()
    elif change == "a tensor too many":
        tensors[name.replace("layers.0", "layers.99")] = tensors[name].clone()
    else:
        del tensors[name]
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(UserError, match=rf"{adapter} is no adapter that fits its base: .*q_proj"):
        load_model(adapter, base)
