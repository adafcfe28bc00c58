"""The embedded model is an ordinary folder, the same for the same seed."""

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlvr_vocab.training.models.tiny import write_tiny_model
from rlvr_vocab.training.settings import TinyShape

TAGS = ("<think>", "</think>")
SMALL = TinyShape(hidden_size=32, intermediate_size=64, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=16)


def test_the_tiny_model_loads_and_knows_tags_and_digits(tmp_path):
    write_tiny_model(tmp_path, SMALL, ["Box the answer."] * 5, TAGS, seed=0)
    model, info = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert not any(info.values())
    assert model.config.vocab_size == len(tokenizer)
    assert model.config.eos_token_id == tokenizer.eos_token_id != tokenizer.pad_token_id
    ids = tokenizer.encode("<think>123é</think>", add_special_tokens=False)
    assert [tokenizer.decode([token]) for token in ids[:4]] == ["<think>", "1", "2", "3"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "<think>123é</think>"


def test_the_seed_decides_the_weights_and_the_random_state_stays(tmp_path):
    torch.manual_seed(7)
    state = torch.get_rng_state()
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        write_tiny_model(tmp_path / name, SMALL, ["text"], TAGS, seed)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in "abc"]
    assert weights[0] == weights[1] != weights[2]
    assert torch.equal(torch.get_rng_state(), state)
