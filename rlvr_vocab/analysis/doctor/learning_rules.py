"""Rules on the reward: groups that teach nothing, a reward that does not rise, or falls, or hides another."""

from __future__ import annotations

import math

from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.analysis.doctor.reward_scale import Scale, asked_as, is_own, scale_of
from rlvr_vocab.analysis.doctor.seen import Seen, level, mean_of, number, typical, values
from rlvr_vocab.analysis.doctor.thresholds import LIMITS
from rlvr_vocab.analysis.doctor.words import figure, share, steps, typed
from rlvr_vocab.analysis.record import Row


def groups_without_spread(seen: Seen) -> list[Finding]:
    """Groups whose rewards are alike: too hard, too easy, or a reward that does not look at the completion."""
    rows = seen.recent()
    alike, spread, mean = (typical(rows, name) for name in ("frac_reward_zero_std", "reward_std", "reward"))
    if mean is None or (alike is None and spread is None):
        return []
    scale = scale_of(seen.facts, rows[-1])
    groups = alike is not None and alike >= LIMITS.groups_alike
    if not groups and not (spread is not None and spread < LIMITS.reward_std * scale.largest):
        return []
    told = _spread_in_words(rows, alike, spread)
    constant = _is_constant(rows)
    found = []
    if scale.is_near_zero(mean):
        found.append(_too_hard(seen, told))
    elif not scale.is_near_full(mean):
        return [_never_varies(seen, told)]
    elif scale.is_near_full(typical(seen.earliest(), "reward") or 0.0):  # else it has been learned
        found.append(_too_easy(seen, told))
    if found and constant and any(is_own(name) for name in scale.names):
        found.append(_never_varies(seen, told))
    return found


def _spread_in_words(rows: list[Row], alike: float | None, spread: float | None) -> str:
    parts = [f"reward {figure(typical(rows, 'reward') or 0.0)}"]
    if alike is not None:
        parts.append(f"{share(alike)} of completions in groups of equal rewards (limit {share(LIMITS.groups_alike)})")
    if spread is not None:
        parts.append(f"reward_std {figure(spread)} (limit {figure(LIMITS.reward_std)} × the largest weight)")
    within = typical(rows, "groups/reward_std")
    if within is not None:
        parts.append(f"groups/reward_std {figure(within)}")
    return f"{steps(rows)}, medians: {', '.join(parts)}"


def _is_constant(rows: list[Row]) -> bool:
    """Whether every completion of every row got the same reward."""
    return len(set(values(rows, "reward"))) == 1 and set(values(rows, "reward_std")) == {0.0}


def _too_hard(seen: Seen, told: str) -> Finding:
    group = max(8, 2 * seen.facts.num_generations)
    return Finding(
        "groups_too_hard",
        "The problems are too hard: whole groups get no reward",
        "error",
        told,
        "the model never succeeds, so no completion of a group is better than another; or right answers are not "
        "recognised (read the best completions with rlvr-vocab samples)",
        (
            f"training.num_generations={group}",
            "warmup.max_steps=400",
            "rewards=xml",
        ),
        seen.step,
    )


def _too_easy(seen: Seen, told: str) -> Finding:
    return Finding(
        "groups_too_easy",
        "The problems are too easy: whole groups get the full reward",
        "error",
        told,
        "the model solved these problems before training, so nothing is left to compare",
        ("dataset=deepscaler", "dataset=math"),
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
        ("rewards=accuracy",),
        seen.step,
    )


def reward_flat(seen: Seen) -> list[Finding]:
    """The reward is no higher than at the start, although a gain would have been seen."""
    half = min(seen.rows * seen.steps_per_row / 2, LIMITS.flat_window)
    early_rows, late_rows = seen.earliest(half), seen.recent(half)
    early, late, spread = level(early_rows, "reward"), level(late_rows, "reward"), typical(late_rows, "reward_std")
    if seen.since_warmup < seen.rows_for(LIMITS.flat_least) or seen.has_risen or not (early and late and spread):
        return []
    error = math.hypot(early.error, late.error)
    most, reason = late.mean - early.mean + 2 * error, _standing_still(seen)
    names = scale_of(seen.facts, late_rows[-1]).names
    # None of the library's functions is a matter of chance.
    chance = any(map(is_own, names)) and _follows_chance([*early_rows, *late_rows], seen.facts.num_generations)
    excluded = _least_gain(seen, bool(reason), chance) * spread
    # A fall by luck must not pass for certainty.
    if max(most, 2 * error) > excluded or scale_of(seen.facts, late_rows[-1]).is_near_full(early.mean):
        return []
    rate, group = seen.facts.learning_rate, 2 * seen.facts.num_generations
    return [
        Finding(
            "reward_flat",
            "The reward does not rise",
            "warning",
            f"reward {figure(early.mean)} in {steps(early_rows)}, {figure(late.mean)} in {steps(late_rows)}: a gain of "
            f"at most {figure(max(most, 0.0))} (two standard errors), at reward_std {figure(spread)}{reason}",
            "the updates are too small to be seen: the learning rate is too low"
            if reason
            else "the reward follows chance, or something else that updates cannot change; or the learning rate is too "
            "low",
            (f"training.learning_rate={typed(4 * rate or 5e-6)}", f"training.num_generations={group}"),
            seen.step,
        )
    ]


def _least_gain(seen: Seen, stands_still: bool, chance: bool) -> float:
    """The gain, as a share of `reward_std`, that has to be excluded before a reward is called flat."""
    if stands_still:
        return LIMITS.flat_still
    if chance:
        return LIMITS.flat_chance
    return LIMITS.flat_long if seen.rows * seen.steps_per_row >= 2 * LIMITS.flat_window else LIMITS.flat_short


def _follows_chance(rows: list[Row], size: int) -> bool:
    """Whether rewards differ within a group just as much as between groups, beyond the luck of these rows."""
    expected = LIMITS.chance * _expected_share(size)
    pairs = [(number(row, "groups/reward_std"), number(row, "reward_std")) for row in rows]
    excess = mean_of([within - expected * overall for within, overall in pairs if within is not None and overall])
    return excess is not None and excess.mean > 2 * excess.error


def _standing_still(seen: Seen) -> str:
    """The words for a policy that has hardly left the initial model; empty where it has, or nothing says."""
    if seen.kl and seen.kl[-1][0] > LIMITS.flat_least and seen.kl[-1][1] < LIMITS.kl_none:
        return f"; kl {figure(seen.kl[-1][1])} at step {seen.kl[-1][0]} (limit {figure(LIMITS.kl_none)})"
    rate = seen.facts.learning_rate
    return f"; training.learning_rate={typed(rate)}" if 0 < rate < LIMITS.rate_none else ""


def _expected_share(size: int) -> float:
    """Mean standard deviation of so many values drawn from one normal distribution, over that distribution's own."""
    return math.sqrt(2 / (size - 1)) * math.exp(math.lgamma(size / 2) - math.lgamma((size - 1) / 2))


def reward_collapsed(seen: Seen) -> list[Finding]:
    """What had been learned is lost."""
    best, rows = seen.best, seen.recent()
    now = level(rows, "reward")
    if best is None or now is None or best.mean <= 0 or now.mean > LIMITS.collapse * best.mean:
        return []
    if best.mean - now.mean < LIMITS.collapse_errors * math.hypot(best.error, now.error):
        return []
    return [
        Finding(
            "reward_collapsed",
            "The reward has fallen and not come back",
            "error",
            f"reward {figure(now.mean)} in {steps(rows)}, after {figure(best.mean)} in the {len(rows)} rows up to step "
            f"{seen.best_step}",
            "the learning rate is too high: such a fall does not heal",
            (f"training.learning_rate={typed(seen.facts.learning_rate / 4)}", "training.beta=0.01"),
            seen.step,
        )
    ]


def reward_dominated(seen: Seen) -> list[Finding]:
    """One function decides the advantages, although another one varies."""
    rows = seen.recent()
    scale: Scale | None = scale_of(seen.facts, rows[-1]) if rows else None
    pulls = (
        {}
        if scale is None
        else {
            name: (abs(weight) * std, std)
            for name, weight in scale.weights.items()
            if (std := typical(rows, f"rewards/{name}/std")) is not None and weight
        }
    )
    if len(pulls) < 2:
        return []
    first = max(pulls, key=lambda name: pulls[name][0])
    drowned = [
        name
        for name, (pull, std) in pulls.items()
        if std >= LIMITS.drowned_std and LIMITS.dominance * pull < pulls[first][0]
    ]
    if not drowned or scale is None:
        return []
    told = ", ".join(f"{name} {figure(pull)}" for name, (pull, _) in pulls.items())
    fair = {
        name: scale.weights[name] * (pulls[drowned[0]][0] / pulls[first][0] if name == first else 1) for name in pulls
    }
    listed = ",".join(f"{{name:{asked_as(seen.facts, name)},weight:{typed(weight)}}}" for name, weight in fair.items())
    return [
        Finding(
            "reward_dominated",
            f"The reward is decided by {first} alone",
            "warning",
            f"{steps(rows)}, weight × standard deviation: {told}; {' and '.join(drowned)} less than 1/"
            f"{LIMITS.dominance:g} of {first}",
            f"the scores of {first} are spread wider than its weight allows for",
            (f'"rewards=[{listed}]"',),
            seen.step,
        )
    ]
