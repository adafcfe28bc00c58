"""Rules on the groups: those without spread teach nothing, whatever the reason."""

from __future__ import annotations

from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.analysis.doctor.remedies import larger_groups, longer_warm_up
from rlvr_vocab.analysis.doctor.reward_scale import Scale, is_own, scale_of, scale_seen
from rlvr_vocab.analysis.doctor.reward_words import rewards_line, without_own
from rlvr_vocab.analysis.doctor.seen import Seen, average, values
from rlvr_vocab.analysis.doctor.thresholds import LIMITS
from rlvr_vocab.analysis.doctor.words import figure, share, steps
from rlvr_vocab.record.metrics import Row


def groups_without_spread(seen: Seen) -> list[Finding]:
    """Groups whose rewards are alike: too hard, too easy, or a reward that does not look at the completion.

    None of these is what it was not from the beginning: what was learned is no longer too easy, what was lost is not
    too hard, and a reward that once told completions apart has not stopped to look at them.
    """
    rows = seen.sampled()
    mean = average(rows, seen.reward)
    if mean is None or not _are_alike(seen, rows):
        return []
    scale, told = scale_seen(seen, rows[-1]), _spread_in_words(seen, rows)
    always, first = _are_alike(seen, seen.beginning(LIMITS.beginning)), seen.first_reward
    if not scale.is_near_zero(mean) and not scale.is_near_full(mean):
        return [_never_varies(seen, told)] if always else []
    found = []
    if scale.is_near_zero(mean) and _began_near_zero(seen, scale):
        found.append(_too_hard(seen, told))
    elif scale.is_near_full(mean) and scale.is_near_full(first.mean if first else 0.0) and always:
        found.append(_too_easy(seen, told))
    if found and always and _is_constant(rows) and any(is_own(name) for name in scale.names):
        found.append(_never_varies(seen, told))
    return found


def _are_alike(seen: Seen, rows: list[Row]) -> bool:
    """Whether the rewards of a group hardly differ."""
    alike, spread, within = (average(rows, name) for name in ("frac_reward_zero_std", "reward_std", _WITHIN))
    if alike is not None and alike >= LIMITS.groups_alike:
        return True
    if spread is None:
        return False
    # Scaled by the batch, a group without spread is not logged as one.
    narrow = within is not None and within < LIMITS.within * spread
    return narrow or spread < LIMITS.reward_std * scale_of(seen.facts, rows[-1]).largest


_WITHIN = "groups/reward_std"


def _began_near_zero(seen: Seen, scale: Scale) -> bool:
    """Whether the first rows were no better; one alone may be so by luck."""
    first = values(seen.first_sampled(LIMITS.beginning), seen.reward)
    return bool(first) and scale.is_near_zero(sum(first) / len(first)) and scale.is_near_zero(max(first) / 2)


def _spread_in_words(seen: Seen, rows: list[Row]) -> str:
    alike, spread, within = (average(rows, name) for name in ("frac_reward_zero_std", "reward_std", _WITHIN))
    parts = [f"{seen.reward} {figure(average(rows, seen.reward) or 0.0)}"]
    if alike is not None:
        parts.append(f"{share(alike)} of completions in groups of equal rewards (limit {share(LIMITS.groups_alike)})")
    if spread is not None:
        parts.append(f"reward_std {figure(spread)} (limit {figure(LIMITS.reward_std)} × the largest weight)")
    if within is not None:
        parts.append(f"{_WITHIN} {figure(within)} (limit {figure(LIMITS.within)} × reward_std)")
    return f"{steps(rows)}, means: {', '.join(parts)}"


def _is_constant(rows: list[Row]) -> bool:
    """Whether every completion of every row got the same reward."""
    return len(set(values(rows, "reward"))) == 1 and set(values(rows, "reward_std")) == {0.0}


def _too_hard(seen: Seen, told: str) -> Finding:
    return Finding(
        "groups_too_hard",
        "The problems are too hard: whole groups get no reward",
        "error",
        told,
        "the model never succeeds, so no completion of a group is better than another; or right answers are not "
        "recognised (read the best completions with rlvr-vocab samples)",
        (
            larger_groups(seen.facts),
            longer_warm_up(seen.facts),
            rewards_line(seen.facts, {}, more=({"name": "xml_tags"},)),
        ),
        seen.step,
    )


def _too_easy(seen: Seen, told: str) -> Finding:
    digits = seen.facts.arithmetic_digits
    return Finding(
        "groups_too_easy",
        "The problems are too easy: whole groups get the full reward",
        "error",
        told,
        "the model solved these problems before training, so nothing is left to compare",
        (
            *((f"dataset.generator.digits={1 + digits}",) if digits else ()),
            *("dataset=deepscaler", "dataset=math"),
        ),
        seen.step,
    )


def _never_varies(seen: Seen, told: str) -> Finding:
    return Finding(
        "reward_never_varies",
        "The reward never varies within a group",
        "error",
        told,
        "the reward does not depend on what the completion says: it returns a constant, or looks at the problem alone "
        "(try it with rlvr-vocab score)",
        without_own(seen.facts) or ("rewards=accuracy",),
        seen.step,
    )
