"""The share of trained values that an update changes, beside a count of all of them."""

from collections import defaultdict

import pytest
import torch
from torch import nn

from rlvr_vocab.training.metrics.weights import (
    ParameterGroup,
    UpdatedShare,
    every_nth_value,
    parameter_groups,
    sampled_parameters,
)
from rlvr_vocab.training.settings import Lora


class Counted:
    """What all values come to, counted one by one before and after each step."""

    def __init__(self, parameters):
        self._parameters = parameters
        self.shares = []

    def step(self, change):
        before = torch.cat([each.detach().flatten().clone() for each in self._parameters])
        change()
        after = torch.cat([each.detach().flatten() for each in self._parameters])
        self.shares.append((after != before).double().mean().item())


def moved_in(parameters, change):
    metrics = defaultdict(list)
    callback = UpdatedShare(metrics)
    callback._parameters = parameters
    callback.on_step_begin(None, None, None)
    change()
    callback.on_step_end(None, None, None)
    return metrics["weights/moved"]


def test_an_update_below_the_precision_of_the_type_moves_nothing():
    for dtype, share in ((torch.float32, 1.0), (torch.bfloat16, 0.0)):
        parameter = nn.Parameter(torch.ones(50, dtype=dtype))
        assert moved_in([parameter], lambda parameter=parameter: parameter.data.add_(1e-5)) == [share]


def test_the_sample_is_every_nth_of_all_values_across_tensors():
    parts = [torch.arange(start, end, dtype=torch.float64) for start, end in ((0, 10), (10, 11), (11, 40))]
    found = torch.cat([part.view(torch.float64) for part in every_nth_value(parts, 6)])
    assert found.tolist() == list(range(0, 40, 7))
    assert [len(part) for part in every_nth_value([torch.zeros(0), torch.zeros(5)], 6)] == [0, 5]


def test_a_sample_of_a_large_model_is_near_the_count_of_all():
    generator = torch.Generator().manual_seed(0)
    parameters = [nn.Parameter(torch.zeros(997, 501)), nn.Parameter(torch.zeros(300_001))]
    chosen = [torch.rand(each.shape, generator=generator) < 0.3 for each in parameters]
    counted = Counted(parameters)

    def change():
        for parameter, places in zip(parameters, chosen, strict=True):
            parameter.data[places] += 1

    assert moved_in(parameters, lambda: counted.step(change)) == pytest.approx(counted.shares, abs=0.01)


@pytest.mark.parametrize("lora", [None, Lora()])
def test_a_run_logs_the_share_of_its_last_update(lora, expand_shape, make_trainer, tmp_path):
    folder = expand_shape("llama", size=200, open_thinking="prefill")
    trainer = make_trainer(folder, tmp_path, lora=lora, max_steps=4, warmup_steps=2)
    own, counted = trainer.create_optimizer, []

    def create(*args, **kwargs):
        optimizer = own(*args, **kwargs)
        step = optimizer.step
        count = Counted(sampled_parameters(parameter_groups(trainer.model)))
        counted.append(count)
        optimizer.step = lambda *args, **kwargs: count.step(lambda: step(*args, **kwargs))
        return optimizer

    trainer.create_optimizer = create
    trainer.train()
    logged = [row["weights/moved"] for row in trainer.state.log_history if "loss" in row]
    assert logged[0] == 0 and logged[-1] > 0.3  # the rate begins at nothing
    assert logged == pytest.approx(counted[0].shares, abs=0.02)


def test_embedding_and_head_are_left_out_where_anything_else_trains():
    group = {
        name: ParameterGroup(name, trains, (nn.Parameter(torch.zeros(number)),))
        for number, (name, trains) in enumerate([("embedding and head", True), ("layers", True), ("head", False)], 1)
    }
    assert [len(each) for each in sampled_parameters(list(group.values()))] == [2]
    assert [len(each) for each in sampled_parameters([group["embedding and head"], group["head"]])] == [1]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("llama", {"embedding", "head", "layers"}),
        ("qwen3", {"embedding and head", "layers"}),
        ("phi", {"embedding", "head", "bias of the head", "layers"}),
    ],
)
def test_groups_of_a_model_trained_whole(shape, expected, expand_shape, make_trainer, tmp_path):
    groups = parameter_groups(make_trainer(expand_shape(shape, size=10), tmp_path).model)
    assert {group.name for group in groups} == expected and all(group.trains for group in groups)
