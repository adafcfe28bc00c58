"""Runs made sick through the real trainer: each is named by its finding, and by no more than one other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlvr_vocab.analysis.doctor.diagnose import diagnose
from rlvr_vocab.record.metrics import RunRecord
from rlvr_vocab.rewards.reward import RewardSpec

OWN = Path(__file__).with_name("own_rewards.py")
pytestmark = pytest.mark.filterwarnings("ignore")
Spoil = Callable[[Any], None]


def another_sampler(trainer: Any) -> None:
    """Samples with the standard tokens closed while thinking, where the trainer holds them open."""
    from rlvr_vocab.vocab.policy import RegionPolicy

    trainer.sampler.policy = RegionPolicy(replace(trainer.policy.layout, mode="replace"))


def stuck_weights(trainer: Any) -> None:
    """From the fifth step on, every update is taken back."""
    import torch
    from transformers import TrainerCallback

    class Stuck(TrainerCallback):
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any, **_: Any) -> None:
            self.before = [each.detach().clone() for each in model.parameters()]

        def on_optimizer_step(self, args: Any, state: Any, control: Any, model: Any, **_: Any) -> None:
            if state.global_step >= 4:
                with torch.no_grad():
                    for now, then in zip(model.parameters(), self.before, strict=True):
                        now.copy_(then)

    trainer.add_callback(Stuck())


def own(name: str, **fields: Any) -> RewardSpec:
    return RewardSpec(f"{OWN}:{name}", **fields)


SICK: dict[str, tuple[str, dict[str, Any]]] = {
    "gold answers that nobody gives": ("groups_too_hard", {"gold": lambda number: "77"}),
    "a full mark for everything": ("groups_too_easy", {"rewards": [own("always_one")]}),
    "a constant reward": ("reward_never_varies", {"rewards": [own("constant")]}),
    "a random reward": ("reward_flat", {"rewards": [own("chance")], "max_steps": 30}),
    "a cold sampler": ("mode_collapse", {"temperature": 0.05}),
    "a huge learning rate, with KL": ("kl_exploding", {"learning_rate": 0.3, "kl_log_steps": 1}),
    "a huge learning rate, without KL": ("entropy_exploding", {"learning_rate": 0.1, "kl_log_steps": 0}),
    "no learning rate": ("learning_rate_zero", {"learning_rate": 0.0, "max_steps": 24}),
    "a learning rate below the last digit": ("learning_rate_zero", {"learning_rate": 1e-10}),
    "a learning rate near nothing": ("reward_flat", {"learning_rate": 1e-7, "max_steps": 30}),
    "a tight limit": ("completions_cut_off", {"max_completion_length": 4}),
    "a model that cannot close": (
        "thinking_never_closed",
        {"expansion": {"untaught": True, "open_thinking": "prefill"}},
    ),
    "a format that looks for a prefilled tag": (
        "format_reward_zero",
        {"rewards": ["accuracy", own("starts_with_think_format")], "expansion": {"open_thinking": "prefill"}},
    ),
    "characters counted against right answers": (
        "reward_dominated",
        {"rewards": ["accuracy", own("characters")]},
    ),
    "a deadline of nothing": (
        "verifier_timeouts",
        {"rewards": ["accuracy", own("too_slow", deadline=0.02)]},
    ),
    "every second row without a score": ("rows_skipped", {"rewards": [own("half_of_them")]}),
    "a function that raises": ("rows_skipped", {"rewards": ["accuracy", own("raises")]}),
    "a tiny limit on gradients": ("gradients_clipped", {"max_grad_norm": 1e-3, "max_steps": 22}),
    "another policy in the sampler": ("sampler_disagrees", {"spoil": another_sampler, "expansion": {"size": None}}),
    "a model that does not think": (
        "reasoning_tokens_unused",
        {"expansion": {"untaught": True, "open_thinking": "model", "size": None}},
    ),
    "weights that are put back": ("weights_not_moving", {"spoil": stuck_weights, "max_steps": 16}),
    "weights in 16 bits": (
        "updates_rounded_away",
        {"model_init_kwargs": {"dtype": "bfloat16"}, "learning_rate": 1e-4},
    ),
    "a reward that takes its time": ("steps_slow", {"rewards": [own("slow_accuracy")]}),
}


@pytest.mark.parametrize("sickness", SICK)
def test_a_sick_run_is_named_by_its_finding_and_at_most_one_other(
    sickness: str, train_run: Callable[..., RunRecord]
) -> None:
    expected, changes = SICK[sickness]
    record = train_run(**changes)
    names = [finding.name for finding in diagnose(record)]
    assert expected in names and len(names) <= 2, diagnose(record)


HEALTHY: dict[str, dict[str, Any]] = {
    "baseline": {},
    "reasoning vocabulary": {"expansion": {"size": None}},
    "reasoning vocabulary in place of the standard one": {"expansion": {"size": None, "mode": "replace"}},
    "two rewards, every second step logged": {"rewards": ["accuracy", "boxed"], "logging_steps": 2},
}


@pytest.mark.parametrize("kind", HEALTHY)
def test_a_healthy_run_has_no_findings(kind: str, train_run: Callable[..., RunRecord]) -> None:
    record = train_run(**{"max_steps": 30, **HEALTHY[kind]})
    assert diagnose(record) == []
