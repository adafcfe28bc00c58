"""Findings on scores and learning: groups without spread, lost rows, rewards that do not rise, fall, or mislead.

Each rule returns its finding where the rows so far show it; its thresholds stand above it.
"""

from __future__ import annotations

import math
from itertools import pairwise

from rlvr_vocab.analysis.doctor.history import (
    BEGINNING,
    FEWEST_ROWS,
    RISEN,
    Estimate,
    Evaluation,
    Finding,
    History,
    Window,
    full_mark,
    library_name,
)
from rlvr_vocab.rewards.library import LIBRARY
from rlvr_vocab.rewards.reward import traits_by_name

_ALIKE = 0.9  # share of completions in groups of equal rewards: nine of ten groups teach nothing
_LEAST_STD = 0.1  # `reward_std` in units of the largest weight (docs/guide.md)
_SPREADS = ("frac_reward_zero_std", "reward_std", "groups/reward_std")
_WITHIN = 0.1  # `groups/reward_std` in units of `reward_std`: healthy runs have 0.9


def no_group_differs(history: History) -> Finding | None:
    rows, first_rows = history.sampled.recent(), history.sampled.earliest(BEGINNING, fewest=1)
    reward, first = rows.mean("reward"), history.sampled.earliest(BEGINNING).values("reward")
    if reward is None or not first or not _are_alike(history, rows):
        return None
    now, before = rows.estimate("reward"), history.first_reward
    if now and before and now.is_above(before, RISEN):
        return None
    title, cause, remedy = (
        "The reward never varies within a group",
        "the reward is a constant, or depends on the problem alone (try it with rlvr-vocab score)",
        "rewards: one that looks at the completion, such as rewards=accuracy",
    )
    # A single first row may be 0 by luck.
    if all(map(history.is_near_zero, (reward, sum(first) / len(first), max(first) / 2))):
        title, cause, remedy = (
            "The problems are too hard: whole groups get no reward",
            "the model never succeeds; or right answers are not recognised (read completions with rlvr-vocab samples)",
            "warmup.max_steps: a longer warm-up; dataset: easier problems; rewards: partial credit, such as xml_tags",
        )
    elif not _are_alike(history, first_rows) or history.is_near_zero(reward):
        return None
    elif history.is_near_full(reward):
        if before is None or not history.is_near_full(before.mean):
            return None
        title, cause, remedy = (
            "The problems are too easy: whole groups get the full reward",
            "the model solved these problems before training; or a reward gives everything the full mark",
            "dataset: harder problems, such as dataset=deepscaler; training.dynamic_sampling=true where some are hard",
        )
    return Finding(title, "error", _spreads(history), cause, remedy)


def spread_lost(history: History) -> Finding | None:
    rows = history.sampled.recent()
    # The last rows of a task that is learned are at the full mark first; and so few rows may be below it by luck.
    rewards = [part.mean("reward") for part in (Window(rows[-FEWEST_ROWS:]), rows)]
    if not _are_alike(history, rows) or _are_alike(history, history.sampled.earliest(BEGINNING, fewest=1)):
        return None
    for reward in rewards:
        if reward is None or not 0 < reward < history.full_reward:
            return None
        if history.is_near_zero(reward) or history.is_near_full(reward):
            return None
    return Finding(
        "The groups have lost their spread",
        "warning",
        _spreads(history),
        "the policy repeats itself, or the problems that are left are solved always or never",
        "training.dynamic_sampling=true; training.beta: raise it; training.learning_rate: a quarter of it",
    )


def _are_alike(history: History, rows: Window) -> bool:
    alike, spread, within = (rows.mean(name) for name in _SPREADS)
    if alike is not None and alike >= _ALIKE:
        return True
    if spread is None:
        return False
    # Scaled by the batch, a group without spread is not logged as one.
    narrow = within is not None and within < _WITHIN * spread
    # Where no group is flat, TRL divides by the group's own small spread.
    return narrow or (alike != 0 and spread < _LEAST_STD * history.largest_weight)


def _spreads(history: History) -> str:
    rows = history.sampled.recent()
    found = {name: rows.mean(name) for name in ("reward", *_SPREADS)}
    means = ", ".join(f"{name} {value:.3g}" for name, value in found.items() if value is not None)
    limits = f"{_ALIKE}, {_LEAST_STD} × the largest weight, {_WITHIN} × reward_std"
    return f"{rows.steps}, means: {means} (limits {limits})"


def format_reward_zero(history: History) -> Finding | None:
    rows = history.sampled.recent()
    if not rows or history.sampled.count > 10 * len(rows):
        return None
    for reward in history.facts.rewards:
        name = reward.name
        if reward.weight <= 0 or full_mark(reward) <= 0 or not traits_by_name(library_name(reward)).is_format:
            continue
        means, spreads = (rows.values(f"rewards/{name}/{metric}") for metric in ("mean", "std"))
        if len(means) < len(rows) or any(means) or any(spreads):
            continue
        return Finding(
            f"{name} is 0 for every completion",
            "error",
            f"rewards/{name}/mean 0 and rewards/{name}/std 0 in {rows.steps}",
            f"the system prompt does not ask for the format, it is too strict to be met by chance, or the template "
            f"ends the prompt in {history.facts.think_tags[0]} and {name} looks for it in the completion",
            "dataset.system_prompt: ask for it; warmup.max_steps: show it; rewards: partial credit, such as xml_tags; "
            "dataset.open_thinking=model where the template opens the thinking",
        )
    return None


_UNSCORED = 0.05  # share of completions: one in twenty is sampled for nothing


def rows_skipped(history: History) -> Finding | None:
    rows, rewards = history.sampled.recent(), history.facts.rewards
    seen = []
    for reward in rewards if rows else ():
        name = reward.name
        for metric in ("timeouts", "failures"):
            counts = [value for value in rows.values(f"rewards/{name}/{metric}") if value > 0]
            if rows.recurs(len(counts)):
                seen.append(f"rewards/{name}/{metric} {sum(counts):g} in {len(counts)} of {len(rows)} rows")
        unscored = sum(rows.values(f"rewards/{name}/unscored")) / len(rows)
        # Among several functions one of the user's own may pass on rows that are for another.
        if unscored > _UNSCORED and (len(rewards) == 1 or library_name(reward) in LIBRARY):
            seen.append(f"rewards/{name}/unscored {unscored:.0%} (limit {_UNSCORED:.0%})")
    if not seen:
        return None
    return Finding(
        "Rows are skipped",
        "warning",
        f"{', '.join(seen)}, {rows.steps}",
        "a reward function fails, gives no score or runs into its deadline (try it with rlvr-vocab score)",
        "rewards: mend the function, or give it a longer deadline; dataset.answer_format: as the gold answers are",
    )


def no_gradient(history: History) -> Finding | None:
    """Of a loss or a filter of the user's own: groups differ, and nothing moves."""
    rows, sampled = history.rows.recent(), history.sampled.recent()
    zero = [name for name in ("groups/kept", "grad_norm") if (found := rows.values(name)) and not any(found)]
    if not sampled or _are_alike(history, sampled) or not zero:
        return None
    return Finding(
        "No group is kept" if "groups/kept" in zero else "The loss has no gradient",
        "error",
        f"{' and '.join(zero)} 0 in {rows.steps}",
        "keep_groups is False for all groups, per_token_loss does not depend on logps_BC, or no parameter trains",
        "training.trainer: mend the method, or leave it out",
    )


_FLAT_LEAST = 20.0  # steps after the warm-up of the learning rate: a gain takes a while
_FLAT_WINDOW = 50.0  # steps: the first and the last so many are compared
# A gain above so many `reward_std` is excluded, after 100 steps and before (simulated: docs/reading_runs.md).
_FLAT_LONG, _FLAT_SHORT = 0.1, 0.06


def reward_flat(history: History) -> Finding | None:
    logged = history.rows.count * history.rows.steps_per_row
    half = min(logged / 2, _FLAT_WINDOW)
    early_rows, late_rows = history.sampled.earliest(half), history.sampled.recent(half)
    early, late, spread = early_rows.estimate("reward"), late_rows.estimate("reward"), late_rows.median("reward_std")
    if history.rows_since_warmup < history.rows.rows_for(_FLAT_LEAST) or not (early and late and spread):
        return None
    if history.has_risen or history.sampled.count < len(early_rows) + len(late_rows) - 1:  # they may share one
        return None
    excluded = spread * (_FLAT_LONG if logged >= 2 * _FLAT_WINDOW else _FLAT_SHORT)
    error = 2 * math.hypot(early.error, late.error)
    most = late.mean - early.mean + error
    # A fall by luck must not pass for certainty.
    if max(most, error) > excluded or history.is_near_full(early.mean):
        return None
    return Finding(
        "The reward does not rise",
        "warning",
        f"reward {early.mean:.3g} in {early_rows.steps}, {late.mean:.3g} in "
        f"{late_rows.steps}: a gain of at most {max(most, 0.0):.3g} (two standard errors), at reward_std {spread:.3g}",
        "the reward follows chance, or something else that updates cannot change; or the learning rate is too low",
        "training.learning_rate: four times as much; training.num_generations: larger groups",
    )


_LOST = 0.5  # of the best window
_LOST_ERRORS = 4.0  # standard errors: the best of many windows is partly luck


def reward_collapsed(history: History) -> Finding | None:
    """Compared with the best window, and with a short one: at a far too high rate the reward is gone at once."""
    rows, first_rows = history.sampled.recent(), history.sampled.earliest(fewest=1)
    now, short = rows.estimate("reward"), len(history.sampled.earliest(BEGINNING, fewest=1))
    if now is None or history.best is None:
        return None
    noise, count = history.reward_noise, len(rows)
    # A window has the noise of all rows where its own are more alike, which some of many windows are by chance.
    now, best = (Estimate(each.mean, max(each.error, noise / math.sqrt(count))) for each in (now, history.best))
    parts = [Window(first_rows[start : start + short]) for start in range(len(first_rows) - short + 1)]
    early = max(parts, key=lambda part: part.mean("reward") or 0.0)
    beginning = Estimate(early.mean("reward") or 0.0, noise / math.sqrt(short))
    windows = ((best, f"the {count} rows up to step {history.best_step}"), (beginning, early.steps))
    for before, where in windows:
        if before.mean > 0 and now.mean <= _LOST * before.mean and before.is_above(now, _LOST_ERRORS):
            return Finding(
                "The reward has fallen and not come back",
                "error",
                f"reward {now.mean:.3g} in {rows.steps}, after {before.mean:.3g} in {where} (limit {_LOST} ×)",
                "the learning rate is too high: such a fall does not heal",
                "training.learning_rate: a quarter of it; training.beta: raise it, such as 0.01",
            )
    return None


_FALL = 0.03  # accuracy, or standard deviations of a reward: smaller falls are nothing
_FALL_ERRORS = 2.0  # standard errors of the difference, at this number of problems
_ENOUGH_TO_PAIR = 4
# Accuracy in training less held-out accuracy: they began alike, and are further apart now (docs/reading_runs.md).
_ALIKE_AT_FIRST, _PARTED = 0.2, 0.1
_PARTED_ERRORS = 3.0


def held_out_accuracy_falls(history: History) -> Finding | None:
    """Over four evaluations, or from before the run to after it; or falls behind the accuracy in training."""
    (best, last), evaluations = history.before_and_after, list(history.evaluations)
    if best is not None and last is not None:
        first = best
    elif len(evaluations) >= _ENOUGH_TO_PAIR:
        # The best of many single ones is partly luck; the pair before the last one shares an evaluation with it.
        *earlier, _, last = [_mean_of_pair(*pair) for pair in pairwise(evaluations)]
        first = evaluations[0]
        best = max(earlier, key=lambda both: both.value)
    else:
        return None
    # The reward of another stage is that of other functions.
    before, now = best.reward if best.stage == last.stage else last.first_reward, last.reward
    error, fall = math.hypot(best.error, last.error), best.value - last.value
    if before is None or now is None or fall <= _FALL * last.spread or fall < _FALL_ERRORS * error:
        return _parted(first, last)
    if not now.is_above(before, _FALL_ERRORS):
        return None
    return Finding(
        "The reward rises while held-out answers get worse",
        "error",
        f"held-out mean {best.value:.3g} up to step {best.step}, {last.value:.3g} at step {last.step} "
        f"(standard error of the difference {error:.3g}); reward {before.mean:.3g} and then {now.mean:.3g}",
        "the policy learns the problems, or a hole in the reward: read rlvr-vocab samples order=highest",
        "training.beta: raise it, such as 0.01; training.max_steps: stop at the best evaluation; rewards: close a hole",
        last.step,
    )


def _parted(first: Evaluation, last: Evaluation) -> Finding | None:
    """Where both accuracies began alike, and that in training is now higher."""
    before, now = first.first_trained, last.trained
    if before is None or now is None or first.stage != last.stage:
        return None
    apart, error = now.mean - last.value, math.hypot(now.error, last.error)
    at_first = before.mean - first.value
    if abs(at_first) > _ALIKE_AT_FIRST or apart - max(at_first, 0.0) <= max(_PARTED, _PARTED_ERRORS * error):
        return None
    return Finding(
        "Held-out accuracy falls behind that of the completions trained on",
        "warning",
        f"accuracy in training {before.mean:.3g} and then {now.mean:.3g}, held out {first.value:.3g} at step "
        f"{first.step} and {last.value:.3g} at step {last.step} (limit {_PARTED} further apart, and "
        f"{_PARTED_ERRORS:g} standard errors of {error:.3g})",
        "the policy learns its problems by heart: they are few, or come too often; or the held-out ones are harder",
        "dataset.max_train_samples: more problems; training.max_steps: fewer; training.beta: raise it, such as 0.01",
        last.step,
    )


def _mean_of_pair(one: Evaluation, other: Evaluation) -> Evaluation:
    """Two evaluations as one, with the reward of the second."""
    value, error = (one.value + other.value) / 2, math.hypot(one.error, other.error) / 2
    return other._replace(value=value, error=error, spread=max(one.spread, other.spread))


_LEAST_READ = 0.05  # of the variance within groups, by the lower end of its interval, or of the scores that move


def reward_reads_thought(history: History) -> Finding | None:
    """A reward that counts, and is not declared to read form or length alone."""
    weighted = {each.name for each in history.facts.rewards if each.weight}
    for each in history.thoughts:
        least = max(filter(None, each["moved"].values()), default=0.0) if each["low"] is None else each["low"]
        counts = each["reads"] and each["name"] in weighted and least > _LEAST_READ
        if counts and each["declared"] not in ("form", "length"):
            return Finding(
                f"Reward {each['sentence'].partition(',')[0]}",
                "warning",
                f"{each['sentence']} (completions up to step {history.step}, limit {_LEAST_READ})",
                "the function takes the whole turn, so it teaches what to show in the thinking",
                "rewards: one that reads what follows the last closing think tag, as after_thinking gives it",
            )
    return None
