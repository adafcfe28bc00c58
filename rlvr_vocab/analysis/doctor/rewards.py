"""Findings on the scores: groups without spread, one function above the others, and what is not scored, or slowly."""

from __future__ import annotations

import re

from rlvr_vocab.analysis.doctor.finding import GUIDE, QUICKSTART, Threshold, figure, share, steps, typed
from rlvr_vocab.analysis.doctor.history import BEGINNING, FEWEST_ROWS, History, mean, median, number, recurs, values
from rlvr_vocab.analysis.doctor.reward_functions import (
    declared,
    full_mark,
    is_accuracy,
    is_own,
    rewards_line,
    without_own,
)
from rlvr_vocab.analysis.doctor.rule import (
    FURTHER_PROBLEMS,
    NO_SIGNAL,
    NOTHING_LEARNED,
    Symptom,
    larger_groups,
    longer_warm_up,
    lower_rate,
    more_entropy,
    rule,
    stronger_kl_penalty,
)
from rlvr_vocab.record.metrics import RewardFact, Row, is_number

GROUPS_ALIKE = Threshold(0.9, "share of completions", "`frac_reward_zero_std`: nine of ten groups teach nothing", GUIDE)
REWARD_STD = Threshold(0.1, "× the largest weight", "`reward_std`: the rewards hardly differ over the batch", GUIDE)
WITHIN = Threshold(
    0.1,
    "× `reward_std`",
    "`groups/reward_std`: the rewards differ between problems and hardly within a group; healthy runs have 0.9",
)
_SPREADS = ("frac_reward_zero_std", "reward_std", "groups/reward_std")


@rule(
    severity="error",
    title="The problems are too hard: whole groups get no reward",
    cause="the model never succeeds, so no completion of a group is better than another; or right answers are not "
    "recognised (read the best completions with rlvr-vocab samples)",
    metrics="`frac_reward_zero_std`, `reward_std`, `groups/reward_std`, and a `reward` near 0",
    explains=NOTHING_LEARNED,
)
def groups_too_hard(history: History) -> Symptom | None:
    """Groups without spread, because no completion succeeds, nor did at the beginning."""
    reward, first = _reward_without_spread(history), values(history.sampled.earliest(BEGINNING), "reward")
    # What was lost is not too hard, and a single first row may be 0 by luck.
    if reward is None or not first:
        return None
    if not all(map(history.scale.is_near_zero, (reward, sum(first) / len(first), max(first) / 2))):
        return None
    facts = history.facts
    tags = rewards_line(facts, {}, more=({"name": "xml_tags"},))
    return Symptom(_spreads_in_words(history), (larger_groups(facts), longer_warm_up(facts), tags))


@rule(
    severity="error",
    title="The problems are too easy: whole groups get the full reward",
    cause="the model solved these problems before training, so nothing is left to compare; or a function of your own "
    "gives everything the full mark (try it with rlvr-vocab score)",
    metrics="the same, and a `reward` near its full mark",
    explains=NOTHING_LEARNED,
)
def groups_too_easy(history: History) -> Symptom | None:
    """Groups without spread, because all succeed, and did so from the beginning."""
    reward, first = _reward_without_spread(history), history.first_reward
    if reward is None or first is None or not _never_had_spread(history):
        return None
    if not history.scale.is_near_full(reward) or not history.scale.is_near_full(first.mean):
        return None
    digits = history.facts.arithmetic_digits
    harder = (f"dataset.generator.digits={1 + digits}",) if digits else ()
    own = without_own(history.facts)
    return Symptom(_spreads_in_words(history), (*harder, "dataset=deepscaler", "dataset=math", FURTHER_PROBLEMS, *own))


@rule(
    severity="error",
    title="The reward never varies within a group",
    cause="the reward does not depend on what the completion says: it returns a constant, or looks at the problem "
    "alone (try it with rlvr-vocab score)",
    metrics="the same, and any other `reward`",
    explains=NOTHING_LEARNED,
)
def reward_never_varies(history: History) -> Symptom | None:
    """Groups without spread, because the reward does not look at the completion, and never did."""
    reward, scale = _reward_without_spread(history), history.scale
    if reward is None or not _never_had_spread(history) or scale.is_near_zero(reward) or scale.is_near_full(reward):
        return None
    return Symptom(_spreads_in_words(history), without_own(history.facts) or ("rewards=accuracy",))


@rule(
    severity="warning",
    title="The groups have lost their spread",
    cause="all completions of a group have come to earn the same: the policy repeats itself, or the problems that are "
    "left are solved always or never",
    metrics="the same in the last rows and not in the first, at a `reward` below its full mark",
    explains=NOTHING_LEARNED,
)
def spread_lost(history: History) -> Symptom | None:
    """Groups without spread, which they had in the beginning; all may have been learned only at the full mark."""
    rows, facts, scale = history.sampled.recent(), history.facts, history.scale
    # What is being learned is at its full mark in the last rows first; and so few rows may be below it by luck.
    rewards = [mean(part, "reward") for part in (rows[-int(FEWEST_ROWS) :], rows)]
    if not _are_alike(history, rows) or _never_had_spread(history):
        return None
    if any(
        reward is None or not 0 < reward < scale.full or scale.is_near_zero(reward) or scale.is_near_full(reward)
        for reward in rewards
    ):
        return None
    return Symptom(
        _spreads_in_words(history),
        (more_entropy(facts), larger_groups(facts), stronger_kl_penalty(facts), lower_rate(facts), FURTHER_PROBLEMS),
    )


def _reward_without_spread(history: History) -> float | None:
    """Mean reward of the last rows, where the rewards of a group hardly differ."""
    rows = history.sampled.recent()
    return mean(rows, "reward") if _are_alike(history, rows) else None


def _never_had_spread(history: History) -> bool:
    return _are_alike(history, history.sampled.beginning())


def _are_alike(history: History, rows: list[Row]) -> bool:
    """Whether the rewards of a group hardly differ."""
    alike, spread, within = (mean(rows, name) for name in _SPREADS)
    if alike is not None and alike >= GROUPS_ALIKE:
        return True
    if spread is None:
        return False
    # Scaled by the batch, a group without spread is not logged as one.
    narrow = within is not None and within < WITHIN * spread
    return narrow or spread < REWARD_STD * history.scale.largest


def _spreads_in_words(history: History) -> str:
    rows = history.sampled.recent()
    alike, spread, within = (mean(rows, name) for name in _SPREADS)
    parts = [f"{history.reward_name} {figure(mean(rows, 'reward') or 0.0)}"]
    if alike is not None:
        parts.append(f"{share(alike)} of completions in groups of equal rewards (limit {share(GROUPS_ALIKE)})")
    if spread is not None:
        parts.append(f"reward_std {figure(spread)} (limit {figure(REWARD_STD)} × the largest weight)")
    if within is not None:
        parts.append(f"groups/reward_std {figure(within)} (limit {figure(WITHIN)} × reward_std)")
    return f"{steps(rows)}, means: {', '.join(parts)}"


DOMINANCE = Threshold(20, "× in weight × std", "the other one decides less than a twentieth of an advantage")
DROWNED_STD = Threshold(
    0.15, "std of the drowned reward", "a reward that hardly varies, being met, has nothing to say", QUICKSTART
)


@rule(severity="warning", metrics="weight × `rewards/<name>/std`", explains=("reward_flat",))
def reward_dominated(history: History) -> Symptom | None:
    """One function decides the advantages, although another varies."""
    rows = history.sampled.recent()
    weights: dict[str, float] = {}
    stds: dict[str, float] = {}
    for reward in history.facts.rewards if rows else ():
        adapted, std = number(rows[-1], f"rewards/{reward.name}/weight"), median(rows, f"rewards/{reward.name}/std")
        if std is not None and reward.weight:
            weights[reward.name], stds[reward.name] = reward.weight if adapted is None else adapted, std
    pulls = {name: abs(weights[name]) * std for name, std in stds.items()}
    first = max(pulls, key=lambda name: pulls[name], default="")
    drowned = [name for name, std in stds.items() if std >= DROWNED_STD and DOMINANCE * pulls[name] < pulls[first]]
    if not drowned:
        return None
    told = ", ".join(f"{name} {figure(pull)}" for name, pull in pulls.items())
    fair = {"weight": float(typed(weights[first] * pulls[drowned[0]] / pulls[first]))}
    return Symptom(
        f"{steps(rows)}, weight × standard deviation: {told}; {' and '.join(drowned)} less than 1/{DOMINANCE:g} of "
        f"{first}",
        (rewards_line(history.facts, {first: fair}),),
        cause=f"the scores of {first} are spread wider than its weight allows for",
        title=f"The reward is decided by {first} alone",
    )


_FORMAT_NAME = re.compile(r"format|tag|xml|think|struct|box", re.IGNORECASE)
_PENALTY_NAME = re.compile(r"(^|_)(no|not|without|missing|bad|wrong)_|penalt|punish|violation|forbid|error", re.I)


@rule(
    severity="error",
    metrics="`rewards/<name>/mean` of a function that is named after a format, tags, boxes or thinking; penalties, "
    "whose full mark is 0, are none",
    explains=(*NO_SIGNAL, "reward_flat"),
)
def format_reward_zero(history: History) -> Symptom | None:
    """A reward for a format is 0 for every completion."""
    rows, facts = history.sampled.recent(), history.facts
    if not rows or history.sampled.count > 10 * len(rows):
        return None
    for reward in filter(_pays_for_a_format, facts.rewards):
        name, (opened, _) = reward.name, facts.think_tags
        means, spreads = (values(rows, f"rewards/{name}/{metric}") for metric in ("mean", "std"))
        if len(means) < len(rows) or any(means) or any(spreads):
            continue
        # The library's function of that kind sees what the template has opened.
        swapped = (rewards_line(facts, {name: {"name": "think_format"}}),) if is_own(name) else ()
        tags = rewards_line(facts, {}, more=({"name": "xml_tags"},))
        return Symptom(
            f"rewards/{name}/mean 0 and rewards/{name}/std 0 in {steps(rows)}",
            (longer_warm_up(facts), tags, *swapped, "dataset.open_thinking=model"),
            cause=f"the model has never written what {name} asks for: the system prompt does not ask for it, the "
            f"format is too strict to be met by chance, or the chat template ends the prompt in {opened} and {name} "
            "looks for it in what the model wrote",
            title=f"{name} is 0 for every completion",
        )
    return None


def _pays_for_a_format(reward: RewardFact) -> bool:
    """Whether it pays for one: a penalty is 0 where there is nothing to punish."""
    if reward.weight <= 0 or full_mark(reward) <= 0:
        return False
    if not is_own(reward.name):
        return declared(reward.name).is_format
    return bool(_FORMAT_NAME.search(reward.name)) and not _PENALTY_NAME.search(reward.name)


@rule(
    severity="warning",
    cause="comparing some answers takes longer than the deadline allows, and they score 0 or nothing: hostile or huge "
    "expressions, a slow function of your own, or a deadline that is too short",
    metrics="`rewards/<name>/timeouts`",
    explains=(*NO_SIGNAL, "reward_flat", "scoring_slow", "rows_skipped"),
)
def verifier_timeouts(history: History) -> Symptom | None:
    """Comparisons run into their deadline again and again."""
    rows = history.sampled.recent()
    for reward in history.facts.rewards:
        metric = f"rewards/{reward.name}/timeouts"
        counts = [value for value in values(rows, metric) if value > 0]
        if recurs(len(counts), rows):
            longer = rewards_line(history.facts, {reward.name: _longer_deadline(reward)})
            return Symptom(
                f"{metric}: {sum(counts):g} completions in {len(counts)} of {len(rows)} rows, {steps(rows)}",
                (longer,),
                title=f"{reward.name} runs into its deadline",
            )
    return None


def _longer_deadline(reward: RewardFact) -> Row:
    # One of the library has a deadline for each comparison, one of the user's own for a batch.
    own = is_own(reward.name)
    given = (reward.more if own else reward.more.get("params", {})).get("deadline")
    deadline = {"deadline": max(600 if own else 30, 2 * given if is_number(given) else 0)}
    return deadline if own else {"params": deadline}


UNSCORED = Threshold(0.05, "share of rows", "one row in twenty sampled for nothing")


@rule(
    severity="warning",
    title="Rows are skipped",
    cause="a reward function fails or gives no score, so what was sampled for these rows is lost (try it with "
    "rlvr-vocab score)",
    metrics="`rewards/<name>/failures`, `rewards/<name>/unscored`",
    explains=(*NO_SIGNAL, "reward_flat"),
)
def rows_skipped(history: History) -> Symptom | None:
    """Completions without a score."""
    rows, names = history.sampled.recent(), [reward.name for reward in history.facts.rewards]
    told: dict[str, str] = {}
    for name in names if rows else ():
        # Among several functions one of the user's own may pass on rows that are for another.
        may_pass = is_own(name) and len(names) > 1
        failed = [value for value in values(rows, f"rewards/{name}/failures") if value > 0]
        unscored = sum(values(rows, f"rewards/{name}/unscored")) / len(rows)
        if recurs(len(failed), rows):
            told[name] = f"rewards/{name}/failures {sum(failed):g} in {len(failed)} of {len(rows)} rows"
        elif unscored > UNSCORED and not may_pass:
            told[name] = f"rewards/{name}/unscored {share(unscored)} (limit {share(UNSCORED)})"
    if not told:
        return None
    own = [name for name in told if is_own(name)]
    forms = tuple(f"dataset.answer_format={form}" for form in ("boxed", "hash", "bare"))
    return Symptom(
        f"{', '.join(told.values())}, {steps(rows)}", (rewards_line(history.facts, {}, without=own),) if own else forms
    )


SCORING_PART = Threshold(0.3, "share of a step", "the device waits so long; healthy runs have 0.01", QUICKSTART)
SCORING_SECONDS = Threshold(0.1, "seconds per step", "the steps of toy models take less than that")


@rule(
    severity="warning",
    title="Scoring takes much of a step",
    cause="a reward function is slow: it calls something outside, or compares hard expressions",
    metrics="`step_time`, `time/rewards`",
)
def scoring_slow(history: History) -> Symptom | None:
    """Scoring takes much of the seconds of a step."""
    rows, facts = history.rows.recent(), history.facts
    timed = sorted((row for row in rows if number(row, "step_time") is not None), key=lambda row: row["step_time"])
    # Without the longest tenth: a step that writes a checkpoint is no habit.
    kept = timed[: len(timed) - len(timed) // 10]
    whole, scoring = (sum(values(kept, name)) for name in ("step_time", "time/rewards"))
    if 2 * len(timed) < len(rows) or scoring < SCORING_SECONDS * len(kept) or scoring <= SCORING_PART * whole:
        return None
    graders = [each.name for each in facts.rewards if is_accuracy(each.asked_as or each.name)]
    return Symptom(
        f"time/rewards {figure(scoring / len(kept))} s of step_time {figure(whole / len(kept))} s in {steps(rows)}: "
        f"{share(scoring / whole)} (limit {share(SCORING_PART)})",
        without_own(facts) or (rewards_line(facts, {name: {"params": {"deadline": 1}} for name in graders}),),
    )
