"""Training with copies in each rank: one policy, one reference, and folders that are the model that was trained."""

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from rlvr_vocab.vocab.copied_rows import read_differences
from tests.training.conftest import logits_of

TRAINED = {
    "learning_rate": 3e-2,  # copies are no longer what their sources are
    "beta": 0.04,
    "num_iterations": 2,  # a checkpoint at an odd step holds completions that are still to be trained on
    "max_steps": 3,
    "per_device_train_batch_size": 16,
    "max_completion_length": 24,
    "save_strategy": "steps",
    "save_steps": 1,
}
slow = pytest.mark.slow
every_rank = pytest.mark.parametrize(
    ("name", "rank"),
    [("gemma3", 4), ("phi", 4), *(pytest.param(*case, marks=slow) for case in (("gemma3", None), ("phi", 0)))],
)
with_its_own_training = pytest.mark.parametrize(
    ("name", "rank"), [("phi", 4), pytest.param("gemma3", None, marks=slow)]
)


@pytest.fixture(scope="module")
def folder_of(expand_shape):
    return lambda name, rank: expand_shape(name, size=None, multiplicity=2, reasoning_rank=rank)


@pytest.fixture(scope="module")
def trained(folder_of, make_trainer, tmp_path_factory):
    """The finished run of a shape and a rank, made at the first call."""
    made = {}

    def train(name, rank):
        if (name, rank) not in made:
            out = tmp_path_factory.mktemp(f"{name}-{rank}")
            made[name, rank] = make_trainer(folder_of(name, rank), out, **TRAINED)
            made[name, rank].train()
        return made[name, rank]

    return train


def parameters(trainer):
    return {name: each.detach().clone() for name, each in trainer.model.named_parameters()}


def assert_same_bits(one, other):
    assert one.keys() == other.keys() and all(torch.equal(one[name], each) for name, each in other.items())


@every_rank
def test_a_trained_model_is_sampled_as_it_is_scored_and_its_checkpoint_is_the_same_in_stock_classes(
    name, rank, trained, farthest_from_its_score
):
    trainer = trained(name, rank)
    stock = AutoModelForCausalLM.from_pretrained(trainer.checkpoints.output_dir / "checkpoint-3")
    layout = trainer.policy.layout
    logits = logits_of(trainer.model.eval(), layout.rows)
    assert (logits_of(stock.eval(), layout.rows) - logits).abs().max() < 1e-4
    from_sources = logits[..., layout.standard_size : layout.rows] - logits[..., list(layout.source_ids)]
    assert (from_sources.abs().max() > 0.1) == (rank != 0)
    inputs = next(iter(trainer.get_train_dataloader()))
    trainer.model.train()
    batches = [trainer._generate_and_score_completions(inputs) for _ in range(3)]
    assert sum(int(batch["completion_mask"].sum()) for batch in batches) > 500
    assert any(trainer.policy.is_reasoning(batch["completion_ids"]).any() for batch in batches)
    assert max(farthest_from_its_score(trainer, batch) for batch in batches) < 1e-4


@every_rank
def test_the_reference_has_the_same_form_and_the_first_kl_is_none(name, rank, trained):
    trainer = trained(name, rank)
    first, *others = (row for row in trainer.state.log_history if "loss" in row)
    assert abs(first["kl"]) < 1e-6 and abs(first["kl/ids"]) < 1e-6 and min(row["kl"] for row in others) > 1e-4
    layout, tables = (
        trainer.policy.layout,
        (model.get_input_embeddings() for model in (trainer.model, trainer.ref_model)),
    )
    assert {len(table.weight) for table in tables} == {layout.rows if rank is None else layout.standard_size}


@with_its_own_training
def test_the_next_training_begins_with_the_weights_of_a_folder_or_a_checkpoint(
    name, rank, trained, folder_of, make_trainer, tmp_path
):
    before = trained(name, rank)
    stage = make_trainer(folder_of(name, rank), tmp_path / "stage", **TRAINED)
    stage.checkpoints.load_weights(before.checkpoints.output_dir / "checkpoint-3")
    assert_same_bits(parameters(stage), parameters(before))
    before.save_model(str(tmp_path / "final_model"))
    trainer = make_trainer(tmp_path / "final_model", tmp_path / "out", **{**TRAINED, "max_steps": 1})
    assert trainer.policy.layout == before.policy.layout
    assert_same_bits(parameters(trainer), parameters(before))
    trainer.train()
    (row,) = (row for row in trainer.state.log_history if "loss" in row)
    assert abs(row["kl"]) < 1e-6  # from where it began


@with_its_own_training
def test_a_resume_has_the_differences_of_the_checkpoint_and_ends_with_the_same_bits(
    name, rank, trained, folder_of, make_trainer, tmp_path
):
    whole = trained(name, rank)
    resumed = make_trainer(folder_of(name, rank), tmp_path, **TRAINED)
    resumed.train(resume_from_checkpoint=str(whole.checkpoints.output_dir / "checkpoint-1"))
    assert_same_bits(parameters(resumed), parameters(whole))
    folders = [each.checkpoints.output_dir / "checkpoint-3" for each in (whole, resumed)]
    assert_same_bits(*(load_file(folder / "model.safetensors") for folder in folders))
    if rank:
        one, other = (read_differences(folder) for folder in folders)
        assert_same_bits(one, other)
        assert torch.equal(one["input.B"], parameters(whole)["model.embed_tokens.difference.B"])
