"""The rule on held-out problems: the reward rises and what it stands for does not."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.analysis.doctor.seen import Seen, typical
from rlvr_vocab.analysis.doctor.thresholds import LIMITS
from rlvr_vocab.analysis.doctor.words import figure
from rlvr_vocab.analysis.record import Row, is_number

_ENOUGH_TO_PAIR = 4
_USUAL_PROBLEMS = 64


class _Measured(NamedTuple):
    step: int
    accuracy: float
    answers: float
    reward: float | None


def held_out_falls(seen: Seen) -> list[Finding]:
    """Held-out accuracy has fallen from its best while the reward went on to rise."""
    measured = [
        _Measured(step, accuracy, n or _USUAL_PROBLEMS, reward) for step, accuracy, n, reward in seen.evaluations
    ]
    if len(measured) >= _ENOUGH_TO_PAIR:  # the best of many single measurements is partly luck
        measured = [_both(*pair) for pair in pairwise(measured)]
        measured = [*measured[:-2], measured[-1]]  # the last pair and the one before it share a measurement
    if len(measured) < 2:
        return []
    last = measured[-1]
    best = max(measured[:-1], key=lambda each: each.accuracy)
    return _fallen(best, last)


def _both(one: _Measured, other: _Measured) -> _Measured:
    rewards = [each.reward for each in (one, other) if each.reward is not None]
    reward = sum(rewards) / len(rewards) if rewards else None
    return _Measured(other.step, (one.accuracy + other.accuracy) / 2, one.answers + other.answers, reward)


def _fallen(best: _Measured, last: _Measured) -> list[Finding]:
    error = math.hypot(*(math.sqrt(each.accuracy * (1 - each.accuracy) / each.answers) for each in (best, last)))
    fall = best.accuracy - last.accuracy
    if best.reward is None or last.reward is None or last.reward <= best.reward:
        return []
    if fall <= LIMITS.held_out_fall or fall < LIMITS.held_out_errors * error:
        return []
    return [
        Finding(
            "held_out_accuracy_falls",
            "The reward rises while held-out accuracy falls",
            "error",
            f"eval/accuracy {figure(best.accuracy)} up to step {best.step}, {figure(last.accuracy)} at step "
            f"{last.step} (standard error of the difference {figure(error)}); reward {figure(best.reward)} and then "
            f"{figure(last.reward)}",
            "the problems, or a hole in the reward, are being learned instead of the task: read the best-paid "
            "completions with rlvr-vocab samples order=highest",
            ("training.beta=0.01", *((f"training.max_steps={best.step}",) if best.step else ()), "rewards=accuracy"),
            last.step,
        )
    ]


def before_and_after(seen: Seen, summary: Row, first_reward: float | None) -> list[Finding]:
    """The same of a run that was measured only before and after."""
    before, after, problems = (summary.get(key) for key in ("accuracy_before", "accuracy_after", "held_out_problems"))
    if not (is_number(before) and is_number(after) and is_number(problems) and problems and seen.rows):
        return []
    assert before is not None and after is not None and problems is not None
    reward = typical(seen.recent(), "reward")
    return _fallen(_Measured(0, before, problems, first_reward), _Measured(seen.step, after, problems, reward))
