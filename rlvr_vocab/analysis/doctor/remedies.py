"""Configuration lines that a finding suggests, made from what the run had; `RunFacts.takes` tries each of them."""

from __future__ import annotations

from rlvr_vocab.analysis.doctor.words import typed
from rlvr_vocab.record.metrics import RunFacts

_USUAL_BETA, _USUAL_ENTROPY_COEF = 0.01, 0.001
_USUAL_GROUP, _USUAL_WARM_UP = 8, 400


def lower_rate(facts: RunFacts) -> str:
    return f"training.learning_rate={typed(facts.learning_rate / 4)}"


def stronger_pull(facts: RunFacts) -> str:
    """A larger weight of the KL to the initial model."""
    return f"training.beta={typed(4 * facts.beta or _USUAL_BETA)}"


def more_entropy(facts: RunFacts) -> str:
    return f"training.entropy_coef={typed(4 * facts.entropy_coef or _USUAL_ENTROPY_COEF)}"


def longer_completions(facts: RunFacts) -> str:
    """Twice the limit, or all that the model's context leaves."""
    twice = 2 * facts.max_completion_length
    return f"training.max_completion_length={min(twice, facts.longest_completion or twice)}"


def larger_groups(facts: RunFacts) -> str:
    """Twice the completions for each problem or more, and as many problems in a batch."""
    (key, value), size = facts.together, facts.num_generations
    times = max(2, -(-_USUAL_GROUP // size))
    return f"training.num_generations={times * size} training.{key}={times * value}"


def larger_batches(facts: RunFacts) -> str:
    return f"training.gradient_accumulation_steps={2 * facts.gradient_accumulation_steps}"


def longer_warm_up(facts: RunFacts) -> str:
    """More supervised steps; those that end at an accuracy have to aim higher too."""
    steps = f"warmup.max_steps={2 * facts.warmup_steps or _USUAL_WARM_UP}"
    until = facts.warmup_until
    return steps if until is None else f"{steps} warmup.until_accuracy={typed((1 + until) / 2)}"
