"""The shape that a configuration describes, against models that Transformers builds of it without weights."""

import json

import pytest
import torch
import transformers

from rlvr_vocab.errors import UserError
from rlvr_vocab.plan.architecture import SHIPPED, architecture_of, read_architecture

BODY = {
    "hidden_size": 128,
    "intermediate_size": 320,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 311,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SHAPES = (
    {"model_type": "llama", "tie_word_embeddings": True},
    {"model_type": "qwen2"},
    {"model_type": "qwen3", "head_dim": 24, "tie_word_embeddings": True},
    {"model_type": "gemma2", "head_dim": 16},
    {"model_type": "gemma3_text", "head_dim": 16},
    *SHIPPED.values(),
)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape['model_type']}_{shape.get('hidden_size', '')}")
def test_weights_are_counted_as_transformers_builds_them(shape):
    config = transformers.AutoConfig.for_model(**({} if "hidden_size" in shape else BODY) | shape)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    read = read_architecture(config.to_dict(), "here")
    assert read.weights == sum(parameter.numel() for parameter in model.parameters())
    tables = {id(module.weight) for module in (model.get_input_embeddings(), model.get_output_embeddings())}
    assert read.tables == len(tables)


def test_the_text_part_counts_where_a_model_has_several():
    nested = {"model_type": "gemma3", "text_config": {**BODY, "model_type": "gemma3_text"}}
    assert read_architecture(nested, "here").model_type == "gemma3_text"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "t5"}, "has no hidden_size"),
        ({**BODY, "model_type": "mixtral", "num_local_experts": 4}, "a mixture of experts"),
    ],
)
def test_a_model_that_cannot_be_planned_is_refused(config, message, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError, match=r"^model\.name=nobody/nothing: this machine has no config\.json"):
        architecture_of("nobody/nothing")
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=message):
        architecture_of(str(tmp_path))


def test_a_configuration_in_the_hub_s_cache_may_leave_out_defaults(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    refs, snapshot = (tmp_path / "models--a--b" / each for each in ("refs", "snapshots/1234"))
    for folder in (refs, snapshot):
        folder.mkdir(parents=True)
    (refs / "main").write_text("1234")
    hub = {key: value for key, value in BODY.items() if key not in ("num_key_value_heads", "pad_token_id")}
    (snapshot / "config.json").write_text(json.dumps({**hub, "model_type": "llama"}))
    found = architecture_of("a/b")
    assert (found.kv_heads, found.head_dim, found.tied) == (8, 16, False)


def test_an_unknown_family_is_counted_as_llama_is_built():
    found = read_architecture({**BODY, "model_type": "brand_new"}, "here")
    llama = read_architecture({**BODY, "model_type": "llama"}, "here")
    assert found.weights == llama.weights
