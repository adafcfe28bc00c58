"""What a rule of the doctor is: how it looks, the words of its finding, what follows from it; shared remedies."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from rlvr_vocab.analysis.doctor.finding import Finding, Severity, typed
from rlvr_vocab.analysis.doctor.history import History
from rlvr_vocab.record.metrics import RunFacts

# Findings that several others explain.
NO_SIGNAL = ("groups_too_hard", "groups_too_easy", "reward_never_varies", "spread_lost")
NOTHING_LEARNED = ("reward_flat", "weights_not_moving", "updates_rounded_away")
OF_REASONING_TOKENS = ("reasoning_tokens_unused", "reasoning_tokens_everywhere")
INCOHERENT_POLICY = (
    *NO_SIGNAL,
    *("reward_flat", "reward_collapsed", "reward_dominated", "held_out_accuracy_falls", "format_reward_zero"),
    *("completions_cut_off", "thinking_never_closed", "mode_collapse", "gradients_clipped", "scoring_slow"),
    *(*OF_REASONING_TOKENS, "updates_rounded_away"),
)
UNSTABLE_POLICY = (*INCOHERENT_POLICY, "kl_high", "entropy_collapsing", "entropy_exploding")


@dataclass(frozen=True)
class Symptom:
    """What a rule has seen, and the configuration lines that it suggests.

    Attributes:
        evidence, remedy: those of the `Finding`.
        cause, title, severity: where they depend on what was seen; else they are those of the rule.
        step: where it was seen; None for the last step.
    """

    evidence: str
    remedy: tuple[str, ...]
    cause: str = ""
    title: str = ""
    severity: Severity | None = None
    step: int | None = None


@dataclass(frozen=True)
class Rule:
    """What leads to one finding, which has the name of the function that looks for it.

    Attributes:
        look: returns what it has seen in the rows so far, or None; its docstring says what the finding is.
        metrics: what it reads, for the documentation.
        explains: findings that follow from this one, and are not told beside it.
    """

    look: Callable[[History], Symptom | None]
    severity: Severity
    title: str
    cause: str
    metrics: str
    explains: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.look.__name__

    @property
    def description(self) -> str:
        return " ".join((self.look.__doc__ or "").split()).removesuffix(".")

    def finding(self, history: History) -> Finding | None:
        """The finding, where the history shows it; each remedy once, and no more than the run's configuration takes."""
        seen, facts = self.look(history), history.facts
        if seen is None:
            return None
        return Finding(
            self.name,
            seen.title or self.title,
            seen.severity or self.severity,
            seen.evidence,
            seen.cause or self.cause,
            tuple(_with_stage(line, facts) for line in dict.fromkeys(seen.remedy) if facts.takes(line)),
            history.step if seen.step is None else seen.step,
        )


def rule(
    *, severity: Severity, metrics: str, title: str = "", cause: str = "", explains: tuple[str, ...] = ()
) -> Callable[[Callable[[History], Symptom | None]], Rule]:
    """Make a rule of the decorated function; its symptoms may have a title and a cause of their own."""
    return lambda look: Rule(look, severity, title, cause, metrics, explains)


_OF_A_STAGE = re.compile(r"['\"]?(rewards|training|dataset)\b")


def _with_stage(line: str, facts: RunFacts) -> str:
    """The line with the stage that it is for, whose own keys go over those of the run."""
    return f"in stage {facts.stage}: {line}" if facts.stage and _OF_A_STAGE.match(line) else line


# In place of groups without spread, of a run that has others.
FURTHER_PROBLEMS = "training.dynamic_sampling=true"

_USUAL_BETA, _USUAL_ENTROPY_COEF = 0.01, 0.001
_USUAL_GROUP, _USUAL_WARM_UP = 8, 400


def lower_rate(facts: RunFacts) -> str:
    return f"training.learning_rate={typed(facts.learning_rate / 4)}"


def stronger_kl_penalty(facts: RunFacts) -> str:
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
