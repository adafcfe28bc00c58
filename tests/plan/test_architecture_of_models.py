"""The shape that a configuration tells, against models that Transformers builds of it without weights."""

import json

import pytest
import torch
import transformers

from rlvr_vocab.errors import UserError
from rlvr_vocab.plan.architecture import SHIPPED, architecture_of, read_architecture

BODY = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 301,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SHAPES = (
    {"model_type": "llama"},
    {"model_type": "llama", "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    {"model_type": "qwen2"},
    {"model_type": "qwen3", "head_dim": 24, "tie_word_embeddings": True},
    {"model_type": "qwen3_moe", "moe_intermediate_size": 40, "num_experts": 8, "num_experts_per_tok": 2},
    {"model_type": "mixtral", "num_local_experts": 4},
    {"model_type": "gemma2", "head_dim": 16},
    {"model_type": "gemma3_text", "head_dim": 16},
    {"model_type": "phi", "num_key_value_heads": 2},
    *SHIPPED.values(),
)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape['model_type']}_{shape.get('hidden_size', '')}")
def test_weights_are_counted_as_transformers_builds_them(shape):
    config = transformers.AutoConfig.for_model(**({} if "hidden_size" in shape else BODY) | shape)
    assert_counted_as_built(config)


def test_weights_of_gpt2_are_counted_by_its_own_names():
    ends = {name: BODY[name] for name in ("vocab_size", "pad_token_id", "bos_token_id", "eos_token_id")}
    shape = {"n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 77}
    assert_counted_as_built(transformers.GPT2Config(**ends, **shape))


def assert_counted_as_built(config):
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    read = read_architecture(config.to_dict(), "here")
    assert read.is_known
    assert read.weights == sum(parameter.numel() for parameter in model.parameters())
    tables = {id(module.weight) for module in (model.get_input_embeddings(), model.get_output_embeddings())}
    assert read.tables == len(tables)
    assert read.table_weights == read.tables * config.vocab_size * config.hidden_size


def test_the_text_part_counts_where_a_model_has_several():
    nested = {"model_type": "gemma3", "text_config": {**BODY, "model_type": "gemma3_text"}}
    assert read_architecture(nested, "here").model_type == "gemma3_text"


def test_a_model_whose_shape_is_not_at_hand_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError, match=r"^model\.name=nobody/nothing: its shape is not at hand"):
        architecture_of("nobody/nothing")
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    with pytest.raises(UserError, match="says no hidden_size"):
        architecture_of(str(tmp_path))


def test_a_configuration_as_the_hub_s_cache_has_it_leaves_out_what_is_usual(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--a--b" / "snapshots" / "1234"
    snapshot.mkdir(parents=True)
    hub = {key: value for key, value in BODY.items() if key not in ("num_key_value_heads", "pad_token_id")}
    (snapshot / "config.json").write_text(json.dumps({**hub, "model_type": "llama"}))
    found = architecture_of("a/b")
    assert (found.kv_heads, found.head_dim, found.tied, found.context) == (4, 16, False, 128)


def test_a_family_that_is_not_known_is_counted_as_llama_is_built():
    found = read_architecture({**BODY, "model_type": "brand_new"}, "here")
    llama = read_architecture({**BODY, "model_type": "llama"}, "here")
    assert not found.is_known and found.weights == llama.weights
