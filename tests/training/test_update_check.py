"""A run in which something that should train does not stops and says what."""

import logging

import pytest
import torch
from torch import nn

from rlvr_vocab.errors import UserError
from rlvr_vocab.training.settings import Lora
from rlvr_vocab.training.weight_checks import ParameterGroup, UpdateCheck, parameter_groups, rows_of_largest_gradient

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(expand_shape):
    return expand_shape("llama", size=200, open_thinking="prefill")


def check_of(trainer):
    [check] = [each for each in trainer.callback_handler.callbacks if isinstance(each, UpdateCheck)]
    return check


def change_optimizer(trainer, change):
    """Let `change` have the optimizer of a trainer once it is made."""
    own = trainer.create_optimizer

    def create(*args, **kwargs):
        optimizer = own(*args, **kwargs)
        change(optimizer)
        return optimizer

    trainer.create_optimizer = create


@pytest.mark.parametrize(
    ("wanted", "named", "tensors"),
    [
        ("layers.1.mlp.up_proj.lora_B", "LoRA adapter", 1),
        ("embed_tokens.lora_rows", "reasoning rows of the embedding", 1),
    ],
)
def test_parameters_that_the_optimizer_does_not_hold_stop_the_run(
    wanted, named, tensors, folder, make_trainer, tmp_path
):
    trainer = make_trainer(folder, tmp_path, lora=Lora(), max_steps=4)
    dropped = {id(parameter) for name, parameter in trainer.model.named_parameters() if wanted in name}

    def forget(optimizer):
        for group in optimizer.param_groups:
            group["params"] = [parameter for parameter in group["params"] if id(parameter) not in dropped]

    change_optimizer(trainer, forget)
    with pytest.raises(UserError, match=rf"^{named} should train, and the optimizer lacks {tensors} of its tensors$"):
        trainer.train()


def test_parameters_that_an_optimizer_holds_and_does_not_step_stop_the_run(folder, make_trainer, tmp_path):
    trainer = make_trainer(folder, tmp_path, lora=Lora(), max_steps=4)
    rows = [parameter for name, parameter in trainer.model.named_parameters() if "lora_rows" in name]
    initial = [parameter.detach().clone() for parameter in rows]

    def put_back(optimizer, *_):
        for parameter, value in zip(rows, initial, strict=True):
            parameter.data.copy_(value)

    change_optimizer(trainer, lambda optimizer: optimizer.register_step_post_hook(put_back))
    with pytest.raises(UserError, match=r"^reasoning rows of the .* should train and did not change"):
        trainer.train()


def test_an_update_too_small_for_the_type_stops_the_run(folder, make_trainer, tmp_path):
    trainer = make_trainer(folder, tmp_path, learning_rate=1e-12, model_init_kwargs={"dtype": "bfloat16"}, max_steps=4)
    with pytest.raises(UserError, match=r"should train and did not change.*learning_rate is too small"):
        trainer.train()


def test_before_there_is_a_gradient_nothing_has_to_move(folder, make_trainer, tmp_path, caplog):
    """Every group of completions earns the same: no gradient, no update, and no false alarm."""
    trainer = make_trainer(folder, tmp_path, lora=Lora(), max_steps=2)
    for name, function in enumerate(trainer.reward_funcs):
        trainer.reward_funcs[name] = lambda completions, **_: [1.0] * len(completions)
        trainer.reward_funcs[name].__name__ = function.__name__
    with caplog.at_level(logging.WARNING, "rlvr_vocab"):
        trainer.train()
    assert check_of(trainer).waiting == [group for group in parameter_groups(trainer.model) if group.trains]
    assert "LoRA adapter: never updated" in caplog.text


def test_a_learning_rate_that_warms_up_from_zero_is_waited_for(folder, make_trainer, tmp_path):
    trainer = make_trainer(folder, tmp_path, lora=Lora(), max_steps=3, warmup_steps=2)
    trainer.train()
    assert trainer.state.log_history[0]["learning_rate"] == 0
    assert "LoRA adapter" not in [group.name for group in check_of(trainer).waiting]


def test_groups_of_a_model_trained_whole(expand_shape, make_trainer, tmp_path):
    for name, expected in (("llama", {"embedding", "head", "layers"}), ("qwen3", {"embedding and head", "layers"})):
        trainer = make_trainer(expand_shape(name, size=10), tmp_path / name)
        groups = parameter_groups(trainer.model)
        assert {group.name for group in groups} == expected and all(group.trains for group in groups)
    assert {group.name for group in parameter_groups(make_trainer(expand_shape("phi"), tmp_path / "phi").model)} == {
        *("embedding", "head", "bias of the head", "layers")
    }


def test_the_rows_of_largest_gradient_are_compared_and_tensors_without_one_are_not():
    table, bias, still = (nn.Parameter(torch.rand(shape)) for shape in ((3000, 512), (7,), (4, 5)))
    table.grad = torch.zeros_like(table)
    table.grad[[11, 2999]] = torch.tensor([[1.0], [-2.0]])
    bias.grad, still.grad = torch.ones_like(bias), torch.zeros_like(still)
    (found, places, values), (other, _, whole) = rows_of_largest_gradient(
        ParameterGroup("all", True, (table, bias, still, nn.Parameter(torch.ones(2))))
    )
    assert found is table and other is bias and places[:2].tolist() == [2999, 11]
    assert len(places) == 2**20 // (4 * 512) and torch.equal(values, table.detach()[places])
    assert torch.equal(whole, bias.detach().reshape(1, 7)) and whole.data_ptr() != bias.data_ptr()
