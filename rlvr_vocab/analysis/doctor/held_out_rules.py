"""The rule on held-out problems: the reward rises and what it stands for does not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.analysis.doctor.learning_rules import collapse
from rlvr_vocab.analysis.doctor.remedies import stronger_pull
from rlvr_vocab.analysis.doctor.reward_scale import scale_seen
from rlvr_vocab.analysis.doctor.reward_words import without_own
from rlvr_vocab.analysis.doctor.seen import Level, Measured, Seen, level
from rlvr_vocab.analysis.doctor.thresholds import LIMITS
from rlvr_vocab.analysis.doctor.words import figure, steps
from rlvr_vocab.record.metrics import Row, is_number

_ENOUGH_TO_PAIR = 4
_USUAL_PROBLEMS = 64


def held_out_falls(seen: Seen) -> list[Finding]:
    """Held-out accuracy has fallen from its best while the reward went on to rise."""
    measured = list(seen.evaluations)
    if len(measured) >= _ENOUGH_TO_PAIR:  # the best of many single measurements is partly luck
        measured = [_both(*pair) for pair in pairwise(measured)]
        measured = [*measured[:-2], measured[-1]]  # the last pair and the one before it share a measurement
    if len(measured) < 2:
        return []
    last = measured[-1]
    best = max(measured[:-1], key=lambda each: each.accuracy)
    return _fallen(best, last, seen)


def _both(one: Measured, other: Measured) -> Measured:
    rewards = [each.reward for each in (one, other) if each.reward is not None and each.stage == other.stage]
    return other._replace(
        accuracy=(one.accuracy + other.accuracy) / 2,
        problems=_problems(one) + _problems(other),
        reward=_mean(rewards),
    )


def _mean(levels: Sequence[Level]) -> Level | None:
    if not levels:
        return None
    return Level(
        *(math.fsum(parts) / len(levels) for parts in zip(*((each.mean, each.error) for each in levels), strict=True))
    )


def _problems(measured: Measured) -> float:
    return measured.problems or _USUAL_PROBLEMS


def _error(one: Measured, other: Measured) -> float:
    """Standard error of the difference of two accuracies, with one problem more right and one more wrong in each:
    none of four is not certain to stay none."""
    variances = []
    for each in (one, other):
        problems = _problems(each)
        share = (each.accuracy * problems + 1) / (problems + 2)
        variances.append(max(0.0, share * (1 - share) / max(1, problems - 1)))  # percentages are no shares
    return math.sqrt(sum(variances))


def _fallen(best: Measured, last: Measured, seen: Seen) -> list[Finding]:
    # Those of another stage are rewards of other functions.
    before = best.reward if best.stage == last.stage else last.first_reward
    error, fall = _error(best, last), best.accuracy - last.accuracy
    if before is None or last.reward is None:
        return []
    if last.reward.mean - before.mean <= LIMITS.held_out_errors * math.hypot(before.error, last.reward.error):
        return []
    if fall <= LIMITS.held_out_fall or fall < LIMITS.held_out_errors * error:
        return []
    return [
        Finding(
            "held_out_accuracy_falls",
            "The reward rises while held-out accuracy falls",
            "error",
            f"eval/accuracy {figure(best.accuracy)} up to step {best.step}, {figure(last.accuracy)} at step "
            f"{last.step} (standard error of the difference {figure(error)}); {seen.reward} "
            f"{figure(before.mean)} and then {figure(last.reward.mean)}",
            "the problems, or a hole in the reward, are being learned instead of the task: read the best-paid "
            "completions with rlvr-vocab samples order=highest",
            (
                stronger_pull(seen.facts),
                *((f"training.max_steps={best.step}",) if best.step and not seen.facts.stage else ()),
                *without_own(seen.facts),
            ),
            last.step,
        )
    ]


def before_and_after(seen: Seen, summary: Row) -> list[Finding]:
    """The same of a run that was measured only before and after; and what it lost altogether."""
    before, after, problems = (summary.get(key) for key in ("accuracy_before", "accuracy_after", "held_out_problems"))
    if not (is_number(before) and is_number(after) and is_number(problems) and problems and seen.rows):
        return []
    assert before is not None and after is not None and problems is not None
    rows = seen.sampled()
    reward, first = level(rows, seen.reward), seen.first_reward
    measured = (Measured(0, before, problems, first, first), Measured(seen.step, after, problems, reward, first))
    lost = before - after >= max(LIMITS.collapse * before, LIMITS.collapse_errors * _error(*measured))
    if reward is None or not lost or not before or not scale_seen(seen, rows[-1]).is_near_zero(reward.mean):
        return _fallen(*measured, seen)
    told = f"held-out accuracy {figure(before)} before and {figure(after)} after, of {figure(problems)} problems"
    return [collapse(seen, f"{told}; {seen.reward} {figure(reward.mean)} in {steps(rows)}")]
