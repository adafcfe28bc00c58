"""Weights that are no numbers, and generation configurations that nothing could use, are one line."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.sampling import load_checkpoint
from rlvr_vocab.vocab import head
from rlvr_vocab.vocab.adapter import load_model
from rlvr_vocab.vocab.expand import Expansion, expand
from rlvr_vocab.vocab.head_logits import HeadSettings

INVALID = [b"{", b"[]", b"\xff\xfe", b'{"temperature": "hot"}', b'{"eos_token_id": "<|im_end|>"}']


@pytest.fixture
def folders(make_shape, expand_shape, tmp_path):
    """A base and an expanded model of its own, to be damaged."""
    both = tmp_path / "base", tmp_path / "expanded"
    for there, copy in zip((make_shape("qwen3").folder, expand_shape("qwen3")), both, strict=True):
        shutil.copytree(there, copy)
    return both


def require_refused(match, folders, make_trainer, tmp_path):
    """Neither expanded nor loaded nor trained."""
    base, expanded = folders
    for use in (
        lambda: expand(str(base), tmp_path / "out", Expansion(size=10)),
        lambda: load_model(expanded),
        lambda: make_trainer(expanded, tmp_path),
    ):
        with pytest.raises(UserError, match=match):
            use()


@pytest.mark.parametrize("content", INVALID, ids=str)
def test_an_invalid_generation_configuration_is_one_line_that_names_the_file(content, folders, make_trainer, tmp_path):
    for folder in folders:
        (folder / "generation_config.json").write_bytes(content)
    require_refused(r"^[^\n]*generation_config.json[^\n]*$", folders, make_trainer, tmp_path)


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_weights_that_are_no_numbers_are_refused_by_the_name_of_the_tensor(value, folders, make_trainer, tmp_path):
    for folder in folders:
        weights = load_file(folder / "model.safetensors")
        weights["model.layers.1.mlp.down_proj.weight"][-1, -1] = value
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
    require_refused(r"holds NaN or infinite weights, in [\w.]*down_proj.weight", folders, make_trainer, tmp_path)


def test_a_family_with_an_unknown_step_before_its_logits_is_refused_by_its_name(
    expand_shape, make_trainer, tmp_path, monkeypatch
):
    monkeypatch.setattr(head, "head_settings", lambda config, temperature: HeadSettings(temperature, None, 1.1))
    with pytest.raises(UserError, match=r"^Qwen3ForCausalLM: scores differ from its own logits by [^\n]*$"):
        make_trainer(expand_shape("qwen3", size=None), tmp_path)


def test_large_logits_of_16_bits_are_rounded_and_not_refused(expand_shape, make_trainer, tmp_path):
    folder = tmp_path / "base"
    shutil.copytree(expand_shape("phi", size=None), folder)
    weights = load_file(folder / "model.safetensors")
    for name in ("lm_head.weight", "lm_head.bias"):
        weights[name] *= 100
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    make_trainer(folder, tmp_path / "out", bf16=True, temperature=0.2)


@pytest.mark.parametrize("option", [{"num_beams": 0}, {"repetition_penalty": 1.1}, {"top_p": 0.9}], ids=str)
def test_a_folder_whose_own_options_alter_the_policy_is_not_sampled(option, folders, tmp_path):
    for folder in folders:
        (folder / "generation_config.json").write_text(json.dumps(option | {"temperature": 0.6}))
    with pytest.raises(UserError, match=f"generation_config.json: {next(iter(option))}="):
        load_checkpoint(folders[1])
    if "top_p" in option:  # without sampling that is no obstacle to an expansion
        assert expand(str(folders[0]), tmp_path / "out").size == 0


def test_a_model_that_trains_has_no_dropout_of_its_own_unless_asked(folders, make_trainer, tmp_path):
    _, expanded = folders
    config = json.loads((expanded / "config.json").read_text())
    (expanded / "config.json").write_text(json.dumps({**config, "attention_dropout": 0.5}))
    ids = torch.arange(20, 40)[None]
    for disabled in (True, False):
        model = make_trainer(expanded, tmp_path, disable_dropout=disabled).model.train()
        assert torch.equal(model(ids).logits, model(ids).logits) == disabled
