"""An adapter finds the model it was trained on where a run has put it, and takes no other."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.adapter import load_model
from rlvr_vocab.vocab.merge import merge_adapter
from rlvr_vocab.vocab.weights import BASE_RECORD, find_base

CONFIG = "adapter_config.json"


@pytest.fixture
def base(expand_shape, tmp_path):
    return Path(shutil.copytree(expand_shape("llama", size=20), tmp_path / "base"))


@pytest.fixture
def adapter(base, make_adapter):
    return make_adapter(base, "reasoning")


@pytest.fixture
def initial(base):
    """`initial_model` of a run, with the base's weights."""
    return Path(shutil.copytree(base, base.parent / "run" / "initial_model"))


@pytest.fixture
def other(base):
    """A model of the same shape and vocabulary, in which one layer has moved."""
    copy = Path(shutil.copytree(base, base.parent / "other"))
    tensors = load_file(copy / "model.safetensors")
    tensors["model.layers.0.self_attn.q_proj.weight"] += 1e-3
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    return copy


def edit(adapter, **changes):
    config = json.loads((adapter / CONFIG).read_text())
    (adapter / CONFIG).write_text(json.dumps({**config, **changes}))


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("final_adapter", True),
        ("stages/1_format/checkpoint-3", True),
        ("adapter", False),  # where no run puts adapters
    ],
)
def test_in_the_folder_of_a_moved_run_it_is_the_initial_model(place, found, adapter, initial):
    edit(adapter, base_model_name_or_path="where/it/was/trained")
    moved = shutil.copytree(adapter, initial.parent / place)
    if found:
        assert find_base(moved) == initial
    else:
        with pytest.raises(UserError, match="its base where/it/was/trained is not there"):
            find_base(moved)


def test_the_recorded_model_comes_before_that_of_the_run_but_not_with_other_weights(adapter, base, initial, other):
    assert find_base(shutil.copytree(adapter, initial.parent / "checkpoint-1")) == base
    edit(adapter, base_model_name_or_path=str(other))
    assert find_base(shutil.copytree(adapter, initial.parent / "final_adapter")) == initial


def test_another_model_in_the_place_of_the_base_is_refused_by_its_weights(adapter, other):
    for find in (find_base, load_model):
        with pytest.raises(UserError, match=f"{other} has other weights than the model that {adapter} was trained on"):
            find(adapter, other)
    (adapter / BASE_RECORD).unlink()  # an adapter of another tool
    assert find_base(adapter, other) == other


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"peft_type": "TELEPATHY"}, "TELEPATHY"), ({"target_modules": ["nowhere"]}, "Target modules")],
)
def test_a_broken_configuration_is_one_line(changes, reason, adapter, base):
    edit(adapter, **changes)
    for open_it in (lambda: load_model(adapter), lambda: merge_adapter(adapter, base.parent / "out")):
        with pytest.raises(UserError, match=reason) as caught:
            open_it()
        assert str(caught.value).startswith(str(adapter)) and "\n" not in str(caught.value)
    assert not (base.parent / "out").exists()


def test_an_adapter_that_does_not_fit_its_base_or_lost_bytes_of_it_is_refused(base, adapter):
    path = adapter / "adapter_model.safetensors"
    tensors = load_file(path)
    name = next(name for name in tensors if name.endswith("q_proj.lora_A.weight"))
    too_many = {**tensors, name.replace("layers.0", "layers.99"): tensors[name].clone()}
    missing = {key: each for key, each in tensors.items() if key != name}
    for changed in (too_many, missing, {**tensors, name: tensors[name][:, :-1].clone()}):
        save_file(changed, path, metadata={"format": "pt"})
        with pytest.raises(UserError, match=rf"{adapter} is no adapter that fits its base: .*q_proj"):
            load_model(adapter, base)
    weights = base / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    for folder in (adapter, base):
        with pytest.raises(UserError, match=f"{base}.* cannot be (loaded|read)"):
            load_model(folder)
