"""Rules on the reward: it does not rise, or falls, or one function hides another."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rlvr_vocab.analysis.doctor.completion_rules import most_duplicates
from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.analysis.doctor.remedies import larger_groups, lower_rate, stronger_pull
from rlvr_vocab.analysis.doctor.reward_scale import Scale, is_own, scale_of, scale_seen
from rlvr_vocab.analysis.doctor.reward_words import rewards_line
from rlvr_vocab.analysis.doctor.seen import Level, Seen, level, mean_of, number, typical, values
from rlvr_vocab.analysis.doctor.thresholds import LIMITS
from rlvr_vocab.analysis.doctor.words import figure, steps, typed
from rlvr_vocab.record.metrics import Row


def reward_flat(seen: Seen) -> list[Finding]:
    """The reward is no higher than at the start, although a gain would have been seen."""
    half = min(seen.rows * seen.steps_per_row / 2, LIMITS.flat_window)
    early_rows, late_rows = seen.first_sampled(half), seen.sampled(half)
    early, late, spread = level(early_rows, seen.reward), level(late_rows, seen.reward), _spread(seen, late_rows)
    if seen.since_warmup < seen.rows_for(LIMITS.flat_least) or seen.has_risen or not (early and late and spread):
        return []
    if seen.rows_sampled < len(early_rows) + len(late_rows) - 1:  # they may share one
        return []
    error = math.hypot(early.error, late.error)
    most, reason = late.mean - early.mean + 2 * error, _standing_still(seen)
    scale = scale_seen(seen, late_rows[-1])
    # None of the library's functions is a matter of chance.
    chance = any(map(is_own, scale.names)) and _follows_chance([*early_rows, *late_rows], seen.facts.num_generations)
    excluded = _least_gain(seen, bool(reason), chance) * spread
    # A fall by luck must not pass for certainty.
    if max(most, 2 * error) > excluded or scale.is_near_full(early.mean):
        return []
    rate = seen.facts.learning_rate
    return [
        Finding(
            "reward_flat",
            "The reward does not rise",
            "warning",
            f"{seen.reward} {figure(early.mean)} in {steps(early_rows)}, {figure(late.mean)} in {steps(late_rows)}: a "
            f"gain of at most {figure(max(most, 0.0))} (two standard errors), at reward_std {figure(spread)}{reason}",
            "the updates are too small to be seen: the learning rate is too low"
            if reason
            else "the reward follows chance, or something else that updates cannot change; or the learning rate is too "
            "low",
            (f"training.learning_rate={typed(4 * rate or 5e-6)}", larger_groups(seen.facts)),
            seen.step,
        )
    ]


def _spread(seen: Seen, rows: list[Row]) -> float | None:
    """`reward_std` at the weights that the reward is judged by."""
    spread = typical(rows, "reward_std")
    if spread is None:
        return None
    return spread * scale_seen(seen, rows[-1]).largest / scale_of(seen.facts, rows[-1]).largest


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
    """What had been learned, or was there from the beginning, is lost."""
    rows = seen.sampled()
    now = level(rows, seen.reward)
    if now is None or _always_the_same(seen, rows):
        return []
    for best, where in _best_windows(seen, len(rows)):
        error = LIMITS.collapse_errors * math.hypot(best.error, now.error)
        if best.mean <= 0 or now.mean > LIMITS.collapse * best.mean or best.mean - now.mean < error:
            continue
        told = f"{seen.reward} {figure(now.mean)} in {steps(rows)}, after {figure(best.mean)} in {where}"
        return [collapse(seen, f"{told} (limit {figure(LIMITS.collapse)} ×)")]
    return []


def _always_the_same(seen: Seen, rows: list[Row]) -> bool:
    """Whether completions repeat each other now and did from the beginning: no rate has made them so."""
    most = most_duplicates(seen.facts.num_generations)
    repeated = (typical(part, "completions/duplicates") for part in (seen.beginning(LIMITS.beginning), rows))
    return all(each is not None and each > most for each in repeated)


def _best_windows(seen: Seen, length: int) -> Iterator[tuple[Level, str]]:
    """The best window of the usual length, and the best short one of the beginning.

    At a rate that is far too high the reward is gone before a window is full. The spread of so few rows says little of
    their luck, so that the second is given that of all rows; and among all windows of a run some short one is lucky.
    """
    if seen.best is not None:
        yield seen.best, f"the {length} rows up to step {seen.best_step}"
    first, short = seen.beginning(LIMITS.window), len(seen.beginning(LIMITS.beginning))
    parts = [first[start : start + short] for start in range(len(first) - short + 1)]
    means = [math.fsum(found) / short for part in parts if len(found := values(part, seen.reward)) == short]
    if means and len(means) == len(parts):
        best = max(range(len(means)), key=lambda place: means[place])
        yield Level(means[best], seen.noise / math.sqrt(short)), steps(parts[best])


def collapse(seen: Seen, told: str) -> Finding:
    """The finding that something is lost, with what shows it."""
    return Finding(
        "reward_collapsed",
        "The reward has fallen and not come back",
        "error",
        told,
        "the learning rate is too high: such a fall does not heal",
        (lower_rate(seen.facts), stronger_pull(seen.facts)),
        seen.step,
    )


def reward_dominated(seen: Seen) -> list[Finding]:
    """One function decides the advantages, although another one varies."""
    rows = seen.sampled()
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
    fair = {"weight": float(typed(scale.weights[first] * pulls[drowned[0]][0] / pulls[first][0]))}
    return [
        Finding(
            "reward_dominated",
            f"The reward is decided by {first} alone",
            "warning",
            f"{steps(rows)}, weight × standard deviation: {told}; {' and '.join(drowned)} less than 1/"
            f"{LIMITS.dominance:g} of {first}",
            f"the scores of {first} are spread wider than its weight allows for",
            (rewards_line(seen.facts, {first: fair}),),
            seen.step,
        )
    ]
