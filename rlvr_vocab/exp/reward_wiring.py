"""From settings to what the rewards room takes; imports no torch, so that functions are checked before models load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rlvr_vocab.exp.typed_sections import RewardSettings, RunSettings
from rlvr_vocab.rewards.accuracy import extracted_answer
from rlvr_vocab.rewards.build import BuiltReward, RewardContext, RewardSpec, build_rewards
from rlvr_vocab.rewards.turns import THINK_TAGS

if TYPE_CHECKING:
    from rlvr_vocab.vocab.layout import VocabLayout

# Functions that compare with a gold answer through the verifier.
GRADERS = ("accuracy", "accuracy_reward")
VERIFYING = (*GRADERS, "cosine_length")


def reward_specs(rewards: RewardSettings) -> list[RewardSpec]:
    return [
        RewardSpec(
            function.name, function.weight, function.params, function.adaptive, function.full_mark, function.deadline
        )
        for function in rewards.functions
    ]


def reward_context(settings: RunSettings, layout: VocabLayout | None = None) -> RewardContext:
    """What reward functions may ask for of a run; without a layout, the ids of its vocabulary are not yet known."""
    return RewardContext(
        think_tags=settings.model.think_tags,
        standard_size=None if layout is None else layout.standard_size,
        think_open_id=None if layout is None else layout.think_open_id,
        think_close_id=None if layout is None else layout.think_close_id,
        max_completion_length=settings.training.grpo["max_completion_length"],
    )


def stand_in_context(context: RewardContext) -> RewardContext:
    """What is not known before a model is loaded, filled in: to call a function, any values will do."""
    return RewardContext(context.think_tags or THINK_TAGS, 1_000, 1, 2, context.max_completion_length or 1_000)


def grader_of(rewards: RewardSettings | None, think_tags: tuple[str, str]) -> BuiltReward:
    """What tells right answers from wrong ones in a run: its own accuracy where it has one, else the plain one."""
    [grader] = build_rewards([grader_spec(rewards)], RewardContext(think_tags=think_tags))
    return grader


def grader_spec(rewards: RewardSettings | None) -> RewardSpec:
    given = [] if rewards is None else reward_specs(rewards)
    specs = [replace(spec, adaptation=None) for spec in given if spec.name in GRADERS]
    return specs[0] if specs else RewardSpec("accuracy")


def answer_reader(grader: BuiltReward) -> Callable[[str], str | None]:
    """What a grader takes for the final answer of a turn; None where the turn has none."""
    arguments = grader.bound.arguments({})
    given = {name: arguments[name] for name in ("think_tags", "answer_from") if name in arguments}
    return partial(extracted_answer, **given)


def needs_gold_answers(rewards: RewardSettings) -> bool:
    """Whether a function compares with the gold answer through the verifier."""
    return any(function.name in VERIFYING for function in rewards.functions)
