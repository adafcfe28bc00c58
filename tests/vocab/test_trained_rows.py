"""Rows that train beside an adapter, against a stock model whose whole table has them."""

import copy

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from rlvr_vocab.vocab.adapter import add_trained_rows, first_trained_row
from rlvr_vocab.vocab.layout import VocabLayout

SHAPES = (
    *("qwen3", "llama", "gemma3"),
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("qwen2", "gpt2", "gpt2_untied", "phi")),
)


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()


def with_rows(folder, train_rows):
    stock = load(folder)
    model = get_peft_model(copy.deepcopy(stock), LoraConfig(r=2, target_modules="all-linear"))
    layout = VocabLayout.load(folder)
    first = first_trained_row(train_rows, layout)
    assert first == {"reasoning": layout.standard_size, "all": 0}[train_rows]
    add_trained_rows(model, first)
    return model.eval(), stock, first


def moved(model):
    """The parameters of the rows, input side and output side, each moved by its own noise."""
    generator = torch.Generator().manual_seed(3)
    sides = [parameter for name, parameter in model.named_parameters() if "lora_rows" in name]
    for rows in sides:
        rows.data += 0.1 * torch.randn(rows.shape, generator=generator)
    return sides


def some_ids(stock):
    rows = stock.get_input_embeddings().weight.size(0)
    return torch.randint(0, rows, (3, 20), generator=torch.Generator().manual_seed(0))


def largest_difference(a, b, ids):
    with torch.no_grad():
        return (a(input_ids=ids).logits - b(input_ids=ids).logits).abs().max().item()


@pytest.mark.parametrize("train_rows", ["reasoning", "all"])
@pytest.mark.parametrize("name", SHAPES)
def test_rows_compute_and_learn_as_a_stock_model_with_them_on_off_and_merged(name, train_rows, expand_shape):
    model, stock, first = with_rows(expand_shape(name, size=None), train_rows)
    ids = some_ids(stock)
    assert largest_difference(model, stock, ids) < 1e-5
    sides = moved(model)
    assert len(sides) == (1 if stock.config.tie_word_embeddings else 2)
    before = model(input_ids=ids).logits
    with model.disable_adapter():
        assert largest_difference(model, stock, ids) == 0
    model.merge_adapter()
    base = model.get_base_model()
    tables = [base.get_input_embeddings().weight, base.get_output_embeddings().weight]
    for table, rows in zip(tables, sides, strict=False):
        assert torch.equal(table[first:], rows)
    torch.testing.assert_close(model(input_ids=ids).logits, before, rtol=1e-4, atol=1e-5)
    model.unmerge_adapter()
    for table, initial in zip(tables, (stock.get_input_embeddings(), stock.get_output_embeddings()), strict=True):
        assert torch.equal(table, initial.weight)
    assert torch.equal(model(input_ids=ids).logits, before) and largest_difference(model, stock, ids) > 0.01
    own = [stock.get_input_embeddings().weight, stock.get_output_embeddings().weight]
    for table, rows in zip(own, sides, strict=False):
        table.data[first:] = rows.data
    assert largest_difference(model, stock, ids) < 1e-5
    model.zero_grad()
    for each in (model, stock):
        logits = each(input_ids=ids).logits
        logits.log_softmax(-1)[:, :-1].gather(2, ids[:, 1:, None]).mean().backward()
    for rows, table in zip(sides, own, strict=False):
        # From 1: row 0 is Gemma's padding, which gets no gradient in a stock table.
        torch.testing.assert_close(rows.grad[1:], table.grad[first:][1:], rtol=1e-3, atol=1e-7)
    assert all(parameter.grad is None for name, parameter in model.named_parameters() if "base_layer" in name)


def test_rows_of_a_bfloat16_table_are_float32_and_begin_as_it_has_them(expand_shape):
    folder = expand_shape("qwen3", size=None)
    stock = AutoModelForCausalLM.from_pretrained(folder, dtype="bfloat16")
    model = get_peft_model(copy.deepcopy(stock), LoraConfig(r=2, target_modules="all-linear"))
    add_trained_rows(model, VocabLayout.load(folder).standard_size)
    assert model.get_input_embeddings().parameter.dtype == torch.float32
    assert largest_difference(model, stock, some_ids(stock)) == 0
