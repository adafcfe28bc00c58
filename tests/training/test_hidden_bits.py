"""A target for what the choices among the ids of a text tell."""

import math
from collections import defaultdict
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from transformers import TrainerControl, TrainerState

from rlvr_vocab.errors import UserError
from rlvr_vocab.training.hidden_bits import HiddenBitsTarget
from rlvr_vocab.vocab.layout import VocabLayout

STEPS = 12
MOVED = {"size": None, "init_noise": 0.5, "open_thinking": "prefill"}  # copies that tell something from the start
FAST = {"max_steps": STEPS, "learning_rate": 1e-2, "per_device_train_batch_size": 16}


LAYOUT = VocabLayout(8, (1, 2), 6, 7, (), (6, 7), "expand", True, reasoning_rows="low_rank")
LOG_2 = torch.tensor(2.0).log()


def stepped(bounds, target=0.5):
    """A target after steps of one thinking token each, None for a step without one; and the weights it has logged."""
    accelerator = SimpleNamespace(reduce=lambda sums, reduction: sums, device="cpu")
    metrics = {"train": defaultdict(list)}
    steered = HiddenBitsTarget(
        SimpleNamespace(policy=SimpleNamespace(layout=LAYOUT), accelerator=accelerator, _metrics=metrics), target
    )
    for bound in bounds:
        step(steered, bound)
    return steered, metrics["train"]["hidden/weight"]


def step(steered, bound):
    ids = torch.tensor([[0 if bound is None else LAYOUT.think_open_id, 1]])
    steered.term(torch.zeros(1, 1), torch.full((1, 1), bound or 0.0) * LOG_2, ids, torch.ones_like(ids))
    steered.on_step_end(None, TrainerState(), TrainerControl())


def test_the_weight_follows_how_far_the_bound_is_off_and_where_it_is_going():
    errors = [-0.8, -0.75, -0.75, 0.5, 0.25]  # in doublings
    steered, weights = stepped([0.0, *(0.5 * 2**each for each in errors), 40.0])
    five_steps_on = [-1, 1, -0.5, -0.75, 1, -1, 1]
    before = [0.0, -0.12, -0.2325, -0.345, -0.27, -0.2325, -0.2325]
    assert weights == pytest.approx([4 * ahead + rest for ahead, rest in zip(five_steps_on, before, strict=True)])
    assert steered.weight == weights[-1]


def test_a_step_without_a_thought_tells_nothing():
    _, weights = stepped([0.75, None, None])
    assert weights[0] == weights[1] == weights[2] > 0


@pytest.mark.parametrize("times", [0.6, 1.5])
def test_what_piles_up_beside_a_target_that_is_out_of_reach_is_bounded(times):
    _, weights = stepped([0.0] * 400 + [0.5 * times] * 400)
    assert weights[399] == -4 and abs(weights[-1] - 4 * math.log2(times)) == pytest.approx(4)


def test_a_bound_that_the_term_alone_holds_up_comes_to_its_target_and_stays():
    """As in a quickstart: the bound is the square of how far copies are apart, and Adam moves them."""
    apart = torch.zeros(1000, requires_grad=True)
    optimizer = torch.optim.Adam([apart], lr=2e-4)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step / 20, (200 - step) / 180))
    generator, (steered, _), bounds = torch.Generator().manual_seed(0), stepped([], target=0.05), []
    for _ in range(200):
        bound = 30 * apart.square().sum()
        bounds.append(bound.item())
        step(steered, bounds[-1])
        noise = 0.03 * torch.randn(1000, generator=generator)
        optimizer.zero_grad()
        (steered.weight * bound + noise @ apart).backward()
        torch.nn.utils.clip_grad_norm_([apart], 1.0)
        optimizer.step()
        schedule.step()
    assert [min(bounds[100:]), max(bounds[100:])] == pytest.approx([0.05] * 2, rel=0.015)


@pytest.mark.parametrize(("fields", "words"), [({"source_ids": ()}, "no copies"), ({"hidden_bits": 0.5}, "0.5 cannot")])
def test_a_model_without_a_choice_to_steer_is_refused(fields, words):
    layout = replace(LAYOUT, **fields)
    with pytest.raises(UserError, match=words):
        HiddenBitsTarget(SimpleNamespace(policy=SimpleNamespace(layout=layout)), 0.5)


def test_the_term_is_the_weight_times_the_bits_of_a_thinking_token():
    steered, _ = stepped([0.25])
    capacity = torch.full((2, 3), 2.0).log().requires_grad_()
    copies = torch.tensor([[0.1, 0.2, 9.0], [0.3, 9.0, 9.0]], requires_grad=True)
    ids = torch.tensor([[6, 1, 7, 0], [6, 7, 0, 0]])  # opened before, and closed by 7
    thinking = torch.tensor([[1, 1, 0], [1, 0, 0]]).bool()
    term = steered.term(copies, capacity, ids, torch.ones_like(ids))
    assert term.item() == pytest.approx(steered.weight * (1 - 0.2 / LOG_2.item()))
    term.backward()
    assert (copies.grad[~thinking] == 0).all() and (copies.grad[thinking] == -capacity.grad[thinking]).all()
    assert steered.term(copies, capacity, torch.zeros_like(ids), torch.ones_like(ids)).item() == 0


@pytest.mark.parametrize("accumulated", [1, 2])
def test_a_bound_is_moved_towards_its_target_from_either_side(accumulated, expand_shape, make_trainer, tmp_path):
    ends = {}
    for target in (None, 1e-3, 0.9):
        trainer = make_trainer(
            expand_shape("qwen3", **MOVED),
            tmp_path / str(target),
            hidden_bits=target,
            gradient_accumulation_steps=accumulated,
            **FAST,
        )
        trainer.train()
        bounds = [row["hidden/bound"] for row in trainer.state.log_history if "loss" in row]
        ends[target] = sum(bounds[-4:])
    assert ends[1e-3] < 0.8 * ends[None] and ends[0.9] > 1.2 * ends[None]


def test_a_resumed_run_goes_on_with_the_same_weight(expand_shape, make_trainer, tmp_path):
    settings = {"hidden_bits": 0.5, "save_strategy": "steps", "save_steps": 1, "max_steps": 4}
    weights = []
    for folder, stops_after in (("whole", None), ("parts", 2)):
        trainer = make_trainer(expand_shape("qwen3", **MOVED), tmp_path / folder, **settings)
        if stops_after is not None:
            trainer.train()
            trainer = make_trainer(expand_shape("qwen3", **MOVED), tmp_path / folder, **settings)
            trainer.train(resume_from_checkpoint=str(tmp_path / folder / f"checkpoint-{stops_after}"))
        else:
            trainer.train()
        weights.append([row["hidden/weight"] for row in trainer.state.log_history if "loss" in row])
    assert weights[0] == weights[1] and len(weights[0]) == 4
