"""Optimizers of bitsandbytes: they train on a CPU too, hold their state in 8 bit, and resume exactly."""

import pytest
import torch

from rlvr_vocab.training.settings import Lora

pytest.importorskip("bitsandbytes", reason="the extra quantization is not installed")

IN_8_BIT = ("adamw_8bit", "paged_adamw_8bit", "lion_8bit", "paged_lion_8bit", "ademamix_8bit", "rmsprop_bnb_8bit")
IN_32_BIT = ("paged_adamw_32bit", "paged_lion_32bit", "lion_32bit", "paged_ademamix_32bit", "rmsprop_bnb_32bit")
LARGEST_IN_32_BIT = 4096  # elements of a tensor whose state bitsandbytes does not round


@pytest.mark.parametrize(
    "optim",
    [
        optim if optim in ("adamw_8bit", "paged_adamw_32bit") else pytest.param(optim, marks=pytest.mark.slow)
        for optim in IN_8_BIT + IN_32_BIT
    ],
)
def test_every_weight_moves_and_the_state_is_as_wide_as_the_name_says(optim, expand_shape, make_trainer, tmp_path):
    trainer = make_trainer(expand_shape("llama", size=None), tmp_path, optim=optim, max_steps=1)
    before = [parameter.clone() for parameter in trainer.model.parameters()]
    trainer.train()
    assert not any(torch.equal(old, new) for old, new in zip(before, trainer.model.parameters(), strict=True))
    embedding = trainer.model.get_input_embeddings().weight
    for parameter, state in trainer.optimizer.optimizer.state.items():
        # Transformers leaves the state of embeddings in 32 bit: rounded, it is unstable (bitsandbytes' advice).
        rounded = optim in IN_8_BIT and parameter.numel() > LARGEST_IN_32_BIT and parameter is not embedding
        assert state["state1"].element_size() == (1 if rounded else 4)


@pytest.mark.slow
@pytest.mark.parametrize("optim", ["adamw_8bit", "paged_adamw_32bit"])
def test_a_resumed_run_goes_on_as_if_it_had_not_stopped(optim, expand_shape, make_trainer, tmp_path):
    folder = expand_shape("llama", size=None, open_thinking="prefill")
    steps = {"optim": optim, "max_steps": 4, "save_strategy": "steps", "save_steps": 2, "learning_rate": 1e-2}
    whole = make_trainer(folder, tmp_path / "whole", lora=Lora(r=64), **steps)
    whole.train()
    resumed = make_trainer(folder, tmp_path / "resumed", lora=Lora(r=64), **steps)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    for (name, old), new in zip(whole.model.named_parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(old, new), name
