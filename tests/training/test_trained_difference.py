"""Differences of reasoning rows beside an adapter: trained, switched off, merged, saved and loaded."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from rlvr_vocab.errors import UserError
from rlvr_vocab.training.settings import Lora
from rlvr_vocab.vocab.adapter import TrainedRowDelta, load_model
from rlvr_vocab.vocab.copied_rows import copied_rows_of, read_differences
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.merge import merge_adapter

FORM = {"size": None, "reasoning_rank": 4, "init_noise": 0.3, "open_thinking": "prefill"}


@pytest.fixture(params=["qwen3", pytest.param("phi", marks=pytest.mark.slow)])
def folder(request, expand_shape):
    """Tied, and untied with a bias."""
    return expand_shape(request.param, **FORM)


def trained(folder, make_trainer, out, **settings):
    trainer = make_trainer(
        folder, out, lora=Lora(r=4, lora_dropout=0.0), max_steps=3, learning_rate=5e-2, save_strategy="steps",
        save_steps=3, **settings,
    )  # fmt: skip
    trainer.train()
    trainer.model.eval()
    return trainer


def logits(model):
    copies = copied_rows_of(model)
    rows = model.get_output_embeddings().weight.size(0) + (0 if copies is None else copies.layout.size)
    ids = torch.randint(0, rows, (2, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return model(input_ids=ids).logits


def differences_of(model):
    return [module for module in model.modules() if isinstance(module, TrainedRowDelta)]


def test_they_train_and_the_tables_do_not(folder, make_trainer, tmp_path):
    trainer = trained(folder, make_trainer, tmp_path / "out", beta=0.04)
    found = differences_of(trainer.model)
    assert len(found) == (1 if copied_rows_of(trainer.model).tied else 2)
    for each in found:
        moved = (each.base_layer.B - each.lora_difference["default"].B).abs()
        assert moved.amax() > 1e-3 and not each.base_layer.B.requires_grad
    stock = AutoModelForCausalLM.from_pretrained(folder).get_input_embeddings().weight
    standard = stock[: trainer.policy.layout.standard_size]
    assert torch.equal(trainer.model.get_input_embeddings().weight, standard)
    first, *others = [row["kl"] for row in trainer.state.log_history if "kl" in row]
    assert abs(first) < 1e-6 < min(others)  # the reference is the model with its differences switched off
    gaps = [row["sampling/logp_gap"] for row in trainer.state.log_history if "loss" in row]
    assert max(gaps) < 1e-4


def test_merged_in_place_they_compute_the_same_and_come_out_to_the_bit(folder, make_trainer, tmp_path):
    model = trained(folder, make_trainer, tmp_path / "out").model
    before, expected = {name: each.clone() for name, each in model.named_parameters()}, logits(model)
    model.merge_adapter()
    under_stock_names = (  # those that TRL gives them on their way to vLLM
        (name.removeprefix("base_model.model.").replace(".base_layer", ""), each.data)
        for name, each in model.named_parameters()
        if model.prefix not in name
    )
    sent = dict(copied_rows_of(model).stock_parameters(under_stock_names))
    assert (logits(model) - expected).abs().max() < 1e-4
    model.unmerge_adapter()
    assert all(torch.equal(before[name], each) for name, each in model.named_parameters())
    layout = VocabLayout.load(folder)
    tables = [each for name, each in sent.items() if "embed_tokens.weight" in name or "lm_head" in name]
    assert tables and all(len(each) == layout.rows for each in tables)
    assert not any("difference" in name for name in sent)


@pytest.mark.slow
def test_an_adapter_is_loaded_and_merged_with_them(folder, make_trainer, tmp_path):
    trainer = trained(folder, make_trainer, tmp_path / "out")
    checkpoint, expected = tmp_path / "out" / "checkpoint-3", logits(trainer.model)
    assert torch.equal(logits(load_model(checkpoint)), expected)
    report = merge_adapter(checkpoint, tmp_path / "merged")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert report.difference < 1e-4 and (logits(merged) - expected).abs().max() < 1e-4
    stored = read_differences(tmp_path / "merged")
    assert torch.equal(stored["input.B"], differences_of(trainer.model)[0].lora_difference["default"].B)


def test_peft_s_own_way_to_a_whole_model_writes_one_that_stock_classes_and_a_next_training_load(
    folder, make_trainer, tmp_path
):
    trainer = trained(folder, make_trainer, tmp_path / "out")
    expected, out = logits(trainer.model), tmp_path / "whole"
    trainer.model.merge_and_unload().save_pretrained(out)
    trainer.processing_class.save_pretrained(out)
    whole = AutoModelForCausalLM.from_pretrained(out)
    assert whole.config.vocab_size == len(whole.get_input_embeddings().weight) == VocabLayout.load(folder).rows
    assert (logits(whole) - expected).abs().max() < 1e-4
    begun = make_trainer(out, tmp_path / "next").model.eval()
    assert copied_rows_of(begun) is not None and (logits(begun) - expected).abs().max() < 1e-4


def test_on_a_base_without_differences_they_are_refused(make_trainer, expand_shape, tmp_path):
    with pytest.raises(UserError, match="train_rows=all with reasoning_rank=4"):
        make_trainer(expand_shape("qwen3", **FORM), tmp_path, lora=Lora(train_rows="all"))
    trained(expand_shape("qwen3", **FORM), make_trainer, tmp_path / "out")
    other = expand_shape("qwen3", size=None)
    with pytest.raises(UserError, match="has another vocabulary than"):
        load_model(tmp_path / "out" / "checkpoint-3", other)
