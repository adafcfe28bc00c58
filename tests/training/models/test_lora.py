"""Runs that train an adapter, and rows of the vocabulary beside it: what moves, what is saved, and the reference."""

import pytest
import torch
from safetensors import safe_open

from rlvr_vocab.training.metrics.weights import parameter_table
from rlvr_vocab.training.models.lora import without_dropout
from rlvr_vocab.training.settings import Lora
from rlvr_vocab.vocab.adapter import load_model
from tests.training.conftest import logits_of

STEPS = {"max_steps": 3, "weight_decay": 0.1, "beta": 0.04, "save_strategy": "steps", "save_steps": 3}


def tables_of(model):
    """Input and output table of a model, with what trains in them in place."""
    tables = []
    for layer in (model.get_input_embeddings(), model.get_output_embeddings()):
        table = layer.weight.detach().clone()
        if getattr(layer, "parameter", None) is not None:
            table[layer.first :] = layer.parameter.detach()
        tables.append(table)
    return tables


def tensors_of(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize(
    ("name", "train_rows"),
    [
        *(("qwen3", "reasoning"), ("llama", "all"), ("phi", "none")),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("gemma3", "all"), ("phi", "reasoning"))),
    ],
)
def test_the_adapter_and_the_named_rows_move_and_are_saved_and_loaded_to_the_bit(
    name, train_rows, expand_shape, make_trainer, tmp_path
):
    folder, lora = expand_shape(name, size=None, open_thinking="prefill"), Lora(train_rows=train_rows)
    trainer = make_trainer(folder, tmp_path, lora=lora, **STEPS)
    model, layout = trainer.model, trainer.policy.layout
    before, tables_before = tensors_of(model), tables_of(model)
    trainer.train()
    adapter = {name for name in before if "lora_A" in name or "lora_B" in name}
    rows = {name for name in before if "lora_rows" in name}
    assert adapter and len(rows) == (0 if train_rows == "none" else 1 if model.config.tie_word_embeddings else 2)
    after = tensors_of(model)
    assert {name for name, tensor in before.items() if not torch.equal(tensor, after[name])} == adapter | rows
    first_that_moves = {"reasoning": layout.standard_size, "all": 0, "none": layout.rows}[train_rows]
    for table, initial in zip(tables_of(model), tables_before, strict=True):
        assert torch.equal(table[:first_that_moves], initial[:first_that_moves])
        assert not rows or not torch.equal(table[first_that_moves:], initial[first_that_moves:])
    kl = [row["kl"] for row in trainer.state.log_history if "kl" in row]
    assert abs(kl[0]) < 1e-6 < kl[-1]

    checkpoint = tmp_path / "checkpoint-3"
    with safe_open(checkpoint / "adapter_model.safetensors", "pt") as file:
        assert all("lora_" in name for name in file.keys())  # noqa: SIM118  # not a mapping
    logits = logits_of(model.eval(), layout.rows)
    again = make_trainer(folder, tmp_path / "again", lora=lora, **STEPS)
    again.checkpoints.load_weights(checkpoint)
    assert torch.equal(logits_of(again.model.eval(), layout.rows), logits)
    assert torch.equal(logits_of(load_model(checkpoint).eval(), layout.rows), logits)


def test_dropout_thins_updates_and_nothing_else(expand_shape, make_trainer, tmp_path):
    folder = expand_shape("qwen3", size=None, open_thinking="prefill")
    trainer = make_trainer(folder, tmp_path, lora=Lora(lora_dropout=0.5), max_steps=2, learning_rate=0.05)
    trainer.train()
    model, batch = trainer.model.train(), torch.randint(0, 300, (2, 12))

    def same_twice(compute):
        return torch.equal(compute(), compute())

    def score():
        return trainer._get_per_token_logps_and_entropies(model, batch, torch.ones_like(batch), 6)[0]

    assert not same_twice(lambda: model(input_ids=batch).logits) and not same_twice(score)
    with without_dropout(model):
        assert same_twice(lambda: model(input_ids=batch).logits)
    with torch.no_grad():
        assert model.training and same_twice(score)


@pytest.mark.parametrize("train_rows", ["reasoning", "all", "none"])
def test_a_run_lists_every_parameter_once_with_its_size(train_rows, expand_shape, make_trainer, tmp_path):
    trainer = make_trainer(expand_shape("llama", size=100), tmp_path, lora=Lora(r=4, train_rows=train_rows))
    lines = [line.replace(",", "").split() for line in parameter_table(trainer.model)]
    assert sum(int(line[-2]) for line in lines) == sum(p.numel() for p in trainer.model.parameters())
    hidden, inner, head = 32, 64, 16  # inputs and outputs of the linear layers of both blocks are:
    adapted = (hidden + 2 * head) + 2 * (hidden + head) + (2 * head + hidden) + 3 * (hidden + inner)
    rows = {"reasoning": 100, "all": trainer.policy.layout.rows, "none": None}[train_rows]
    trained = {"LoRA adapter": 4 * 2 * adapted}
    if rows is not None:
        trained["rows of the vocabulary"] = 2 * rows * hidden
    assert {" ".join(line[1:-2]): int(line[-2]) for line in lines if line[0] == "trains"} == trained
    assert {" ".join(line[1:-2]) for line in lines if line[0] == "frozen"} == {"embedding and head", "layers"}


def test_merging_at_every_step_leaves_no_trace_in_frozen_weights(expand_shape, make_trainer, tmp_path):
    """As TRL does for vLLM; PEFT's own way wanders."""
    folder = expand_shape("qwen3", size=None, open_thinking="prefill")
    trainer = make_trainer(
        folder, tmp_path, lora=Lora(), learning_rate=0.05, model_init_kwargs={"dtype": "bfloat16"}, bf16=False
    )
    trainer.train()
    model, before = trainer.model, tensors_of(trainer.model)
    frozen = next(name for name in before if name.endswith("q_proj.base_layer.weight"))
    for _ in range(20):
        model.merge_adapter()
        assert not torch.equal(model.state_dict()[frozen], before[frozen])
        model.unmerge_adapter()
    after = tensors_of(model)
    assert [name for name in before if not torch.equal(before[name], after[name])] == []
