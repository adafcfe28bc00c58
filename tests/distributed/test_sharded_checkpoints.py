"""Checkpoints of processes that hold a model in parts, or whole in each: stock, and enough to go on from."""

import json

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.tokenizer import load_tokenizer

KINDS = pytest.mark.parametrize("kind", ["ddp", "fsdp2"])


@KINDS
@pytest.mark.parametrize("name", ["tied_dapo", "untied_dapo", "reference"])
def test_stock_classes_load_what_was_saved(trained, kind, name):
    folder = trained(kind, name)
    layout = VocabLayout.load(folder / "model")
    model = AutoModelForCausalLM.from_pretrained(folder / "model")
    gathered = load_file(folder / "gathered.safetensors")
    written_once = "lm_head.weight" not in load_file(folder / "model" / "model.safetensors")
    assert written_once == (name == "tied_dapo")
    loaded = model.state_dict()
    assert layout.size == 100
    assert model.get_input_embeddings().weight.size(0) == len(load_tokenizer(folder / "model")) == layout.rows
    assert {key: bool((loaded[key] == weight).all()) for key, weight in gathered.items()} == dict.fromkeys(
        gathered, True
    )


@KINDS
@pytest.mark.parametrize(("name", "shape"), [("lora_tied", "qwen3"), ("lora_untied", "llama")])
def test_an_adapter_loads_on_its_base_with_its_rows(trained, expand_shape, kind, name, shape):
    saved = load_file(trained(kind, name) / "model" / "adapter_model.safetensors")
    rows = [key for key in saved if "lora_rows" in key]
    base = AutoModelForCausalLM.from_pretrained(expand_shape(shape, size=100))
    table = base.get_input_embeddings().weight[-100:]
    assert len(rows) == (1 if shape == "qwen3" else 2)
    assert all(saved[key].shape == table.shape and not torch.equal(saved[key], table) for key in rows)
    assert PeftModel.from_pretrained(base, trained(kind, name) / "model").active_adapter == "default"


@KINDS
def test_a_resumed_training_ends_with_the_same_weights(trained, kind):
    whole, resumed = (load_file(trained(kind, name) / "model" / "model.safetensors") for name in ("whole", "resumed"))
    assert {key: torch.equal(resumed[key], weight) for key, weight in whole.items()} == dict.fromkeys(whole, True)


@KINDS
def test_where_one_process_is_told_to_stop_both_save_after_the_same_step(trained, kind):
    [checkpoint] = (trained(kind, "told_to_stop") / "run").glob("checkpoint-*")
    assert checkpoint.name == "checkpoint-1"  # of four, between two updates on the same completions
    listed = json.loads((checkpoint / "manifest.json").read_text())["files"]
    of_each = {
        f"{name}_{rank}.{ending}" for name, ending in (("pending", "pt"), ("rng_state", "pth")) for rank in (0, 1)
    }
    assert {*of_each, "model.safetensors", "reasoning_vocab.json"} <= set(listed)
