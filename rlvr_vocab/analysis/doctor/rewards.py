"""Findings on the scores: groups without spread, formats that are never met, and rows without a score."""

from __future__ import annotations

import re

from rlvr_vocab.analysis.doctor.finding import NO_SIGNAL, Symptom, figure, rule, share, steps
from rlvr_vocab.analysis.doctor.history import (
    BEGINNING,
    FEWEST_ROWS,
    History,
    declared,
    full_mark,
    mean,
    recurs,
    values,
)
from rlvr_vocab.record.metrics import RewardFact, Row
from rlvr_vocab.rewards.library import LIBRARY

_ALIKE = 0.9  # share of completions in groups of equal rewards: nine of ten groups teach nothing
_LEAST_STD = 0.1  # `reward_std` in units of the largest weight (docs/guide.md)
_WITHIN = 0.1  # `groups/reward_std` in units of `reward_std`: healthy runs have 0.9


@rule(
    severity="error",
    title="The reward never varies within a group",
    cause="the reward does not depend on what the completion says: it returns a constant, or looks at the problem "
    "alone (try it with rlvr-vocab score)",
    remedy="rewards: one that looks at the completion, such as rewards=accuracy",
    explains=("reward_flat", "weights_not_moving"),
)
def no_group_differs(history: History) -> Symptom | None:
    rows, first_rows, scale = history.sampled.recent(), history.sampled.beginning(), history.scale
    reward, first = mean(rows, "reward"), values(history.sampled.earliest(BEGINNING), "reward")
    if reward is None or not first or not _are_alike(history, rows):
        return None
    seen = _spreads(history)
    # A single first row may be 0 by luck.
    if all(map(scale.is_near_zero, (reward, sum(first) / len(first), max(first) / 2))):
        return Symptom(
            seen,
            "The problems are too hard: whole groups get no reward",
            "the model never succeeds; or right answers are not recognised (read the best completions with rlvr-vocab "
            "samples)",
            "training.num_generations: larger groups; warmup.max_steps: a longer warm-up; dataset: easier problems; "
            "rewards: add one with partial credit, such as xml_tags",
        )
    if not _are_alike(history, first_rows) or scale.is_near_zero(reward):
        return None
    if not scale.is_near_full(reward):
        return Symptom(seen)
    if history.first_reward is None or not scale.is_near_full(history.first_reward.mean):
        return None
    return Symptom(
        seen,
        "The problems are too easy: whole groups get the full reward",
        "the model solved these problems before training; or a function of your own gives everything the full mark "
        "(try it with rlvr-vocab score)",
        "dataset: harder problems, such as dataset=deepscaler; training.dynamic_sampling=true where some are hard",
    )


@rule(
    severity="warning",
    title="The groups have lost their spread",
    cause="all completions of a group have come to earn the same: the policy repeats itself, or the problems that are "
    "left are solved always or never",
    remedy="training.dynamic_sampling=true; training.entropy_coef or training.beta: raise it; "
    "training.learning_rate: a quarter of it",
    explains=("reward_flat", "weights_not_moving"),
)
def spread_lost(history: History) -> Symptom | None:
    rows, scale = history.sampled.recent(), history.scale
    # What is being learned is at its full mark in the last rows first; and so few rows may be below it by luck.
    rewards = [mean(part, "reward") for part in (rows[-FEWEST_ROWS:], rows)]
    if not _are_alike(history, rows) or _are_alike(history, history.sampled.beginning()):
        return None
    if any(
        reward is None or not 0 < reward < scale.full or scale.is_near_zero(reward) or scale.is_near_full(reward)
        for reward in rewards
    ):
        return None
    return Symptom(_spreads(history))


def _are_alike(history: History, rows: list[Row]) -> bool:
    """Whether the rewards of a group hardly differ."""
    alike, spread, within = _means_of_spreads(rows)
    if alike is not None and alike >= _ALIKE:
        return True
    if spread is None:
        return False
    # Scaled by the batch, a group without spread is not logged as one.
    narrow = within is not None and within < _WITHIN * spread
    return narrow or spread < _LEAST_STD * history.scale.largest


def _means_of_spreads(rows: list[Row]) -> list[float | None]:
    return [mean(rows, name) for name in ("frac_reward_zero_std", "reward_std", "groups/reward_std")]


def _spreads(history: History) -> str:
    rows = history.sampled.recent()
    alike, spread, within = _means_of_spreads(rows)
    parts = [f"{history.reward_name} {figure(mean(rows, 'reward') or 0.0)}"]
    if alike is not None:
        parts.append(f"{share(alike)} of completions in groups of equal rewards (limit {share(_ALIKE)})")
    if spread is not None:
        parts.append(f"reward_std {figure(spread)} (limit {_LEAST_STD} × the largest weight)")
    if within is not None:
        parts.append(f"groups/reward_std {figure(within)} (limit {_WITHIN} × reward_std)")
    return f"{steps(rows)}, means: {', '.join(parts)}"


_FORMAT_NAME = re.compile(r"format|tag|xml|think|struct|box", re.IGNORECASE)
_PENALTY_NAME = re.compile(r"(^|_)(no|not|without|missing|bad|wrong)_|penalt|punish|violation|forbid|error", re.I)


@rule(
    severity="error",
    remedy="dataset.system_prompt: ask for the format; warmup.max_steps: show it; rewards: add one with partial "
    "credit, such as xml_tags; dataset.open_thinking=model where the template opens the thinking",
    explains=(*NO_SIGNAL, "reward_flat"),
)
def format_reward_zero(history: History) -> Symptom | None:
    rows = history.sampled.recent()
    if not rows or history.sampled.count > 10 * len(rows):
        return None
    for name in (each.name for each in history.facts.rewards if _pays_for_a_format(each)):
        means, spreads = (values(rows, f"rewards/{name}/{metric}") for metric in ("mean", "std"))
        if len(means) < len(rows) or any(means) or any(spreads):
            continue
        opened, _ = history.facts.think_tags
        return Symptom(
            f"rewards/{name}/mean 0 and rewards/{name}/std 0 in {steps(rows)}",
            f"{name} is 0 for every completion",
            f"the model has never written what {name} asks for: the system prompt does not ask for it, the format is "
            f"too strict to be met by chance, or the chat template ends the prompt in {opened} and {name} looks for it "
            "in what the model wrote",
        )
    return None


def _pays_for_a_format(reward: RewardFact) -> bool:
    """Whether it pays for one: a penalty is 0 where there is nothing to punish."""
    if reward.weight <= 0 or full_mark(reward) <= 0:
        return False
    if declared(reward).is_format or re.sub(r"_\d+$", "", reward.name) in LIBRARY:
        return declared(reward).is_format
    return bool(_FORMAT_NAME.search(reward.name)) and not _PENALTY_NAME.search(reward.name)


_UNSCORED = 0.05  # share of completions: one in twenty is sampled for nothing


@rule(
    severity="warning",
    title="Rows are skipped",
    cause="a reward function fails, gives no score or runs into its deadline, so what was sampled for these rows is "
    "lost (try it with rlvr-vocab score)",
    remedy="rewards: mend the function, or give it a longer deadline; dataset.answer_format where gold answers are "
    "read wrongly",
    explains=(*NO_SIGNAL, "reward_flat"),
)
def rows_skipped(history: History) -> Symptom | None:
    rows, names = history.sampled.recent(), [reward.name for reward in history.facts.rewards]
    seen = []
    for name in names if rows else ():
        for metric in ("timeouts", "failures"):
            counts = [value for value in values(rows, f"rewards/{name}/{metric}") if value > 0]
            if recurs(len(counts), rows):
                seen.append(f"rewards/{name}/{metric} {sum(counts):g} in {len(counts)} of {len(rows)} rows")
        unscored = sum(values(rows, f"rewards/{name}/unscored")) / len(rows)
        # Among several functions one of the user's own may pass on rows that are for another.
        if unscored > _UNSCORED and (len(names) == 1 or re.sub(r"_\d+$", "", name) in LIBRARY):
            seen.append(f"rewards/{name}/unscored {share(unscored)} (limit {share(_UNSCORED)})")
    return Symptom(f"{', '.join(seen)}, {steps(rows)}") if seen else None
