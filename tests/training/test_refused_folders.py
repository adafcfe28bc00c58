"""Weights that are no numbers, and generation configurations that nothing could use, are one line."""

import json
import shutil

import pytest
from safetensors.torch import load_file, save_file

from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.sampling import load_checkpoint
from rlvr_vocab.vocab.expand import Expansion, expand
from rlvr_vocab.vocab.peft.adapter import load_model

INVALID = ["{", "[]", b"\xff\xfe", {"temperature": "hot"}, {"eos_token_id": "<|im_end|>"}, {"max_new_tokens": "many"}]


def copied(folder, to):
    shutil.copytree(folder, to)
    return to


@pytest.mark.parametrize("content", INVALID, ids=str)
def test_an_invalid_generation_configuration_is_one_line_that_names_the_file(
    content, make_shape, expand_shape, make_trainer, tmp_path
):
    base, expanded = (
        copied(make_shape("qwen3").folder, tmp_path / "base"),
        copied(expand_shape("qwen3"), tmp_path / "e"),
    )
    text = json.dumps(content) if isinstance(content, dict) else content
    for folder in (base, expanded):
        path = folder / "generation_config.json"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    for use in (
        lambda: expand(str(base), tmp_path / "out", Expansion(size=10)),
        lambda: load_model(expanded),
        lambda: make_trainer(expanded, tmp_path),
    ):
        with pytest.raises(UserError, match=r"^[^\n]*generation_config.json[^\n]*$"):
            use()


@pytest.mark.parametrize("option", [{"num_beams": 0}, {"repetition_penalty": 1.1}, {"top_p": 0.9}], ids=str)
def test_a_folder_whose_own_options_alter_the_policy_is_not_sampled(option, expand_shape, tmp_path):
    folder = copied(expand_shape("qwen3"), tmp_path / "model")
    (folder / "generation_config.json").write_text(json.dumps(option))
    with pytest.raises(UserError, match=f"generation_config.json: {next(iter(option))}="):
        load_checkpoint(folder)


def test_a_temperature_without_sampling_is_no_obstacle_to_an_expansion(make_shape, tmp_path):
    base = copied(make_shape("qwen3").folder, tmp_path / "base")
    (base / "generation_config.json").write_text(json.dumps({"temperature": 0.6, "top_p": 0.9}))
    assert expand(str(base), tmp_path / "out").size == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_no_numbers_are_refused_by_the_name_of_the_tensor(
    value, make_shape, expand_shape, make_trainer, tmp_path
):
    base, expanded = (
        copied(make_shape("qwen3").folder, tmp_path / "base"),
        copied(expand_shape("qwen3"), tmp_path / "e"),
    )
    for folder in (base, expanded):
        weights = load_file(folder / "model.safetensors")
        weights["model.layers.1.mlp.down_proj.weight"][-1, -1] = value
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
    for use in (
        lambda: expand(str(base), tmp_path / "out", Expansion(size=10)),
        lambda: load_model(expanded),
        lambda: make_trainer(expanded, tmp_path),
    ):
        with pytest.raises(UserError, match=r"holds NaN or infinite weights, in [\w.]*down_proj.weight"):
            use()
