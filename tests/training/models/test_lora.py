"""Runs that train an adapter, and rows of the vocabulary beside it: what moves, what is saved, and the reference."""

import pytest
import torch
from safetensors import safe_open

from rlvr_vocab.training.metrics.weights import parameter_table
from rlvr_vocab.training.models.lora import without_dropout
from rlvr_vocab.training.settings import Lora
from rlvr_vocab.vocab.adapter import load_model

STEPS = {"max_steps": 3, "weight_decay": 0.1, "beta": 0.04, "save_strategy": "steps", "save_steps": 3}


def sides_of(model):
    """Input and output table of a model, with what trains in them in place."""
    base = getattr(model, "get_base_model", lambda: model)()
    tables = []
    for layer in (base.get_input_embeddings(), base.get_output_embeddings()):
        rows = getattr(layer, "parameter", None)
        table = layer.weight.detach().clone()
        if rows is not None:
            table[layer.first :] = rows.detach()
        tables.append(table)
    return tables


def tensors_of(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def require_what_lora_promises(trainer, folder, out, train_rows):
    """Train three steps and hold the outcome against the issue's list: what moved, KL, bytes, and the reload."""
    model, layout = trainer.model, trainer.policy.layout
    before, tables_before = tensors_of(model), sides_of(model)
    trainer.train()
    changed = {name for name, tensor in tensors_of(model).items() if not torch.equal(tensor, before[name])}
    adapter = {name for name in before if "lora_A" in name or "lora_B" in name}
    rows = {name for name in before if "lora_rows" in name}
    expected_sides = 0 if train_rows == "none" else 1 if model.config.tie_word_embeddings else 2
    assert len(rows) == expected_sides and adapter
    assert changed == adapter | rows
    for table, initial in zip(sides_of(model), tables_before, strict=True):
        still = layout.standard_size if train_rows == "reasoning" else 0 if train_rows == "all" else layout.rows
        assert torch.equal(table[:still], initial[:still])
        assert not rows or not torch.equal(table[still:], initial[still:])
    kl = [row["kl"] for row in trainer.state.log_history if "kl" in row]
    assert abs(kl[0]) < 1e-6 and kl[-1] > 1e-6

    checkpoint = out / "checkpoint-3"
    trained = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    assert (checkpoint / "adapter_model.safetensors").stat().st_size <= 1.1 * trained
    with safe_open(checkpoint / "adapter_model.safetensors", "pt") as file:
        assert {name for name in file.keys() if "lora_" not in name} == set()  # noqa: SIM118  # not a mapping
    return checkpoint


def logits_of(model, rows):
    ids = torch.randint(0, rows, (2, 16), generator=torch.Generator().manual_seed(5))
    model.eval()
    with torch.no_grad():
        return model(input_ids=ids).logits


@pytest.mark.parametrize(
    ("name", "train_rows"),
    [
        *(("qwen3", "reasoning"), ("llama", "all"), ("phi", "none")),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("gemma3", "all"), ("phi", "reasoning"))),
    ],
)
def test_just_the_named_groups_move_and_a_saved_adapter_goes_on_with_identical_logits(
    name, train_rows, expand_shape, make_trainer, tmp_path
):
    folder = expand_shape(name, size=None, open_thinking="prefill")
    lora = Lora(train_rows=train_rows)
    trainer = make_trainer(folder, tmp_path, lora=lora, **STEPS)
    checkpoint = require_what_lora_promises(trainer, folder, tmp_path, train_rows)
    logits = logits_of(trainer.model, trainer.policy.layout.rows)
    again = make_trainer(folder, tmp_path / "again", lora=lora, **STEPS)
    again.checkpoints.load_weights(checkpoint)
    assert torch.equal(logits_of(again.model, trainer.policy.layout.rows), logits)
    assert torch.equal(logits_of(load_model(checkpoint), trainer.policy.layout.rows), logits)


def test_dropout_thins_updates_and_nothing_else(expand_shape, make_trainer, tmp_path):
    folder = expand_shape("qwen3", size=None, open_thinking="prefill")
    trainer = make_trainer(folder, tmp_path, lora=Lora(lora_dropout=0.5), max_steps=2, learning_rate=0.05)
    trainer.train()
    model, batch = trainer.model.train(), torch.randint(0, 300, (2, 12))
    noisy = [model(input_ids=batch).logits for _ in range(2)]
    assert not torch.equal(*noisy)
    with without_dropout(model):
        calm = [model(input_ids=batch).logits for _ in range(2)]
    assert torch.equal(*calm) and model.training
    assert not torch.equal(model(input_ids=batch).logits, model(input_ids=batch).logits)
    mask = torch.ones_like(batch)
    scores = [trainer._get_per_token_logps_and_entropies(model, batch, mask, 6)[0] for _ in range(2)]
    assert not torch.equal(*scores)
    with torch.no_grad():
        scores = [trainer._get_per_token_logps_and_entropies(model, batch, mask, 6)[0] for _ in range(2)]
    assert torch.equal(*scores)


@pytest.mark.parametrize("train_rows", ["reasoning", "all", "none"])
def test_a_run_lists_every_parameter_once_with_its_size(train_rows, expand_shape, make_trainer, tmp_path):
    trainer = make_trainer(expand_shape("llama", size=100), tmp_path, lora=Lora(r=4, train_rows=train_rows))
    lines = [line.replace(",", "").split() for line in parameter_table(trainer.model)]
    assert sum(int(line[-2]) for line in lines) == sum(p.numel() for p in trainer.model.parameters())
    rows = {"reasoning": 100, "all": trainer.policy.layout.rows, "none": None}[train_rows]
    trained = {"LoRA adapter": 4 * 2 * adapted_sizes(trainer)}
    if rows is not None:
        trained["rows of the vocabulary"] = 2 * rows * 32
    assert {" ".join(line[1:-2]): int(line[-2]) for line in lines if line[0] == "trains"} == trained
    assert {" ".join(line[1:-2]) for line in lines if line[0] == "frozen"} == {"embedding and head", "layers"}


def adapted_sizes(trainer):
    """Sum of inputs and outputs of the linear layers of both blocks, by the shape's own figures (rank 1)."""
    hidden, inner, head = 32, 64, 16
    attention = (hidden + 2 * head) + 2 * (hidden + head) + (2 * head + hidden)
    return attention + 2 * (hidden + inner) + (inner + hidden)


def test_merging_at_every_step_leaves_no_trace_in_frozen_weights(expand_shape, make_trainer, tmp_path):
    """As TRL does for vLLM; PEFT's own way wanders."""
    folder = expand_shape("qwen3", size=None, open_thinking="prefill")
    trainer = make_trainer(
        folder, tmp_path, lora=Lora(), learning_rate=0.05, model_init_kwargs={"dtype": "bfloat16"}, bf16=False
    )
    trainer.train()
    model = trainer.model
    before = tensors_of(model)
    for _ in range(20):
        model.merge_adapter()
        assert not torch.equal(model.state_dict()[a_frozen_weight(before)], before[a_frozen_weight(before)])
        model.unmerge_adapter()
    after = tensors_of(model)
    assert [name for name in before if not torch.equal(before[name], after[name])] == []


def a_frozen_weight(tensors):
    return next(name for name in tensors if name.endswith("q_proj.base_layer.weight"))
