"""Findings on what is learned: a reward that does not rise, that falls, or that rises without held-out accuracy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from rlvr_vocab.analysis.doctor.completions import most_duplicates
from rlvr_vocab.analysis.doctor.definition import (
    NO_SIGNAL,
    OF_REASONING_TOKENS,
    Symptom,
    finding,
    larger_groups,
    lower_rate,
    stronger_kl_penalty,
)
from rlvr_vocab.analysis.doctor.finding import GUIDE, GUIDE_ON_RATES, SIMULATED, Threshold, figure, steps, typed
from rlvr_vocab.analysis.doctor.history import WINDOW, Estimate, Evaluation, History, estimate, median, number, values
from rlvr_vocab.analysis.doctor.reward_scale import is_own, scale_of, scale_seen
from rlvr_vocab.analysis.doctor.reward_words import without_own
from rlvr_vocab.record.metrics import Row, is_number

FLAT_LEAST = Threshold(20, "steps", "after the warm-up of the learning rate; a gain takes a while")
FLAT_WINDOW = Threshold(
    50, "steps", "the first and the last so many are compared; the reward rises within 50 to 100 steps", GUIDE
)
FLAT_LONG = Threshold(0.1, "× `reward_std`", "after 100 steps: a gain above it is excluded", SIMULATED)
FLAT_SHORT = Threshold(0.06, "× `reward_std`", "before: healthy rewards may rest for 50 steps", SIMULATED)
FLAT_CHANCE = Threshold(0.2, "× `reward_std`", "where the reward follows chance, see the next row", SIMULATED)
CHANCE = Threshold(
    0.95,
    "× what equal problems would give",
    "`groups/reward_std` over `reward_std`, two standard errors above it: a reward that differs as much within a "
    "group as between groups knows nothing of the problem; healthy runs have 0.9",
    SIMULATED,
)
FLAT_STILL = Threshold(
    0.5, "× `reward_std`", "where the policy has hardly left the initial model, see the next two rows"
)
KL_NONE = Threshold(0.001, "nats per token", "too low a learning rate looks like nothing", GUIDE_ON_RATES)
RATE_NONE = Threshold(1e-8, "learning rate", "a hundredth of the lowest that is usual, 1e-6", GUIDE_ON_RATES)


@finding(
    severity="warning",
    title="The reward does not rise",
    cause="the reward follows chance, or something else that updates cannot change; or the learning rate is too low",
    metrics="`reward` early and late, its noise, `groups/reward_std`, `kl`",
)
def reward_flat(history: History) -> Symptom | None:
    """The reward does not rise, although a gain would have been seen."""
    half = min(history.rows.count * history.rows.steps_per_row / 2, FLAT_WINDOW)
    early_rows, late_rows = history.sampled.earliest(half), history.sampled.recent(half)
    early, late, spread = history.reward_in(early_rows), history.reward_in(late_rows), _spread(history, late_rows)
    if history.rows_since_warmup < history.rows.rows_for(FLAT_LEAST) or not (early and late and spread):
        return None
    if history.has_risen or history.sampled.count < len(early_rows) + len(late_rows) - 1:  # they may share one
        return None
    scale, still = scale_seen(history, late_rows[-1]), _standing_still(history)
    # None of the library's functions is a matter of chance.
    chance = any(map(is_own, scale.names)) and _follows_chance([*early_rows, *late_rows], history.facts.num_generations)
    excluded = _least_gain(history, bool(still), chance) * spread
    error = 2 * math.hypot(early.error, late.error)
    most = late.mean - early.mean + error
    # A fall by luck must not pass for certainty.
    if max(most, error) > excluded or scale.is_near_full(early.mean):
        return None
    return Symptom(
        f"{history.reward} {figure(early.mean)} in {steps(early_rows)}, {figure(late.mean)} in {steps(late_rows)}: a "
        f"gain of at most {figure(max(most, 0.0))} (two standard errors), at reward_std {figure(spread)}{still}",
        (f"training.learning_rate={typed(4 * history.facts.learning_rate or 5e-6)}", larger_groups(history.facts)),
        cause="the updates are too small to be seen: the learning rate is too low" if still else "",
    )


def _spread(history: History, rows: list[Row]) -> float | None:
    """`reward_std` at the weights that the reward is judged by."""
    spread = median(rows, "reward_std")
    if spread is None:
        return None
    return spread * scale_seen(history, rows[-1]).largest / scale_of(history.facts, rows[-1]).largest


def _least_gain(history: History, stands_still: bool, chance: bool) -> float:
    """The gain, as a share of `reward_std`, that has to be excluded before a reward is called flat."""
    if stands_still:
        return FLAT_STILL
    if chance:
        return FLAT_CHANCE
    return FLAT_LONG if history.rows.count * history.rows.steps_per_row >= 2 * FLAT_WINDOW else FLAT_SHORT


def _follows_chance(rows: list[Row], size: int) -> bool:
    """Whether rewards differ within a group just as much as between groups, beyond the luck of these rows."""
    # Mean standard deviation of so many values of one normal distribution, over that distribution's own.
    equal_problems = math.sqrt(2 / (size - 1)) * math.exp(math.lgamma(size / 2) - math.lgamma((size - 1) / 2))
    expected = CHANCE * equal_problems
    pairs = [(number(row, "groups/reward_std"), number(row, "reward_std")) for row in rows]
    excess = estimate([within - expected * overall for within, overall in pairs if within is not None and overall])
    return excess is not None and excess.mean > 2 * excess.error


def _standing_still(history: History) -> str:
    """The words for a policy that has hardly left the initial model; empty where it has, or nothing says."""
    step, kl = history.last_kl or (0, 0.0)
    if step > FLAT_LEAST and kl < KL_NONE:
        return f"; kl {figure(kl)} at step {step} (limit {figure(KL_NONE)})"
    rate = history.facts.learning_rate
    return f"; training.learning_rate={typed(rate)}" if 0 < rate < RATE_NONE else ""


COLLAPSE = Threshold(0.5, "× the best window", "half of what had been learned is lost")
COLLAPSE_ERRORS = Threshold(4, "standard errors", "the best of many windows is partly luck")


@finding(
    severity="error",
    title="The reward has fallen and not come back",
    cause="the learning rate is too high: such a fall does not heal",
    metrics="`reward` now, in its best window and in the first steps; the accuracies before and after the run",
    explains=(
        *(*NO_SIGNAL, "reward_flat", "format_reward_zero", "mode_collapse", "kl_high"),
        *("completions_cut_off", "thinking_never_closed", *OF_REASONING_TOKENS),
    ),
)
def reward_collapsed(history: History) -> Symptom | None:
    """What had been learned, or was there at the beginning, is lost."""
    told = _reward_lost(history) or _accuracy_lost(history)
    return Symptom(told, (lower_rate(history.facts), stronger_kl_penalty(history.facts))) if told else None


def _reward_lost(history: History) -> str:
    """What shows that the reward is lost; empty where it is not."""
    rows = history.sampled.recent()
    now = history.reward_in(rows)
    if now is None or _always_repeats(history, rows):
        return ""
    for best, where in _best_windows(history, len(rows)):
        error = COLLAPSE_ERRORS * math.hypot(best.error, now.error)
        if best.mean > 0 and now.mean <= COLLAPSE * best.mean and best.mean - now.mean >= error:
            told = f"{history.reward} {figure(now.mean)} in {steps(rows)}, after {figure(best.mean)} in {where}"
            return f"{told} (limit {figure(COLLAPSE)} ×)"
    return ""


def _always_repeats(history: History, rows: list[Row]) -> bool:
    """Whether completions repeat each other now and did from the beginning: no rate has made them so."""
    most = most_duplicates(history.facts.num_generations)
    repeated = (median(part, "completions/duplicates") for part in (history.sampled.beginning(), rows))
    return all(each is not None and each > most for each in repeated)


def _best_windows(history: History, length: int) -> Iterator[tuple[Estimate, str]]:
    """The best window of the usual length, and the best short one of the beginning.

    At a rate that is far too high the reward is gone before a window is full. The spread of so few rows says little of
    their luck, so that the second is given that of all rows; and among all windows of a run some short one is lucky.
    """
    if history.best is not None:
        yield history.best, f"the {length} rows up to step {history.best_step}"
    first, short = history.sampled.beginning(WINDOW), len(history.sampled.beginning())
    parts = [first[start : start + short] for start in range(len(first) - short + 1)]
    means = [math.fsum(found) / short for part in parts if len(found := values(part, history.reward)) == short]
    if means and len(means) == len(parts):
        best = max(range(len(means)), key=lambda place: means[place])
        yield Estimate(means[best], history.reward_noise / math.sqrt(short)), steps(parts[best])


HELD_OUT_FALL = Threshold(0.03, "accuracy", "smaller falls are not worth a word")
HELD_OUT_ERRORS = Threshold(2, "standard errors", "of the difference, at this number of problems")
_ENOUGH_TO_PAIR = 4
_USUAL_PROBLEMS = 64


@finding(
    severity="error",
    title="The reward rises while held-out accuracy falls",
    cause="the problems, or a hole in the reward, are being learned instead of the task: read the best-paid "
    "completions with rlvr-vocab samples order=highest",
    metrics="`eval/accuracy` (`training.eval_steps`); else the accuracies before and after the run",
)
def held_out_accuracy_falls(history: History) -> Symptom | None:
    """The reward rises while held-out accuracy falls."""
    around = _before_and_after(history)
    if around is not None and not _accuracy_lost(history):
        return _fallen(history, *around)
    evaluations = list(history.evaluations)
    if len(evaluations) >= _ENOUGH_TO_PAIR:  # the best of many single ones is partly luck
        # The pair before the last one shares an evaluation with it.
        *earlier, _, last = pairwise(evaluations)
        best = max(earlier, key=lambda pair: pair[0].accuracy + pair[1].accuracy)
        return _fallen(history, _both(*best), _both(*last))
    if len(evaluations) < 2:
        return None
    return _fallen(history, max(evaluations[:-1], key=lambda each: each.accuracy), evaluations[-1])


def _both(one: Evaluation, other: Evaluation) -> Evaluation:
    rewards = [each.reward for each in (one, other) if each.reward is not None and each.stage == other.stage]
    return other._replace(
        accuracy=(one.accuracy + other.accuracy) / 2,
        problems=_problems(one) + _problems(other),
        reward=_average(rewards),
    )


def _average(estimates: Sequence[Estimate]) -> Estimate | None:
    if not estimates:
        return None
    means, errors = zip(*((each.mean, each.error) for each in estimates), strict=True)
    return Estimate(math.fsum(means) / len(means), math.fsum(errors) / len(errors))


def _problems(evaluation: Evaluation) -> float:
    return evaluation.problems or _USUAL_PROBLEMS


def _error(one: Evaluation, other: Evaluation) -> float:
    """Standard error of the difference of two accuracies, with one problem more right and one more wrong in each:
    none of four is not certain to stay none."""
    variances = []
    for each in (one, other):
        problems = _problems(each)
        part = (each.accuracy * problems + 1) / (problems + 2)
        variances.append(max(0.0, part * (1 - part) / max(1, problems - 1)))  # percentages are no shares
    return math.sqrt(sum(variances))


def _fallen(history: History, best: Evaluation, last: Evaluation) -> Symptom | None:
    # Those of another stage are rewards of other functions.
    before = best.reward if best.stage == last.stage else last.first_reward
    error, fall = _error(best, last), best.accuracy - last.accuracy
    if before is None or last.reward is None or fall <= HELD_OUT_FALL or fall < HELD_OUT_ERRORS * error:
        return None
    if last.reward.mean - before.mean <= HELD_OUT_ERRORS * math.hypot(before.error, last.reward.error):
        return None
    facts = history.facts
    return Symptom(
        f"eval/accuracy {figure(best.accuracy)} up to step {best.step}, {figure(last.accuracy)} at step {last.step} "
        f"(standard error of the difference {figure(error)}); {history.reward} {figure(before.mean)} and then "
        f"{figure(last.reward.mean)}",
        (
            stronger_kl_penalty(facts),
            *((f"training.max_steps={best.step}",) if best.step and not facts.stage else ()),
            *without_own(facts),
        ),
        step=last.step,
    )


def _before_and_after(history: History) -> tuple[Evaluation, Evaluation] | None:
    """The accuracies before and after a finished run."""
    summary = history.summary or {}
    before, after, problems = (summary.get(key) for key in ("accuracy_before", "accuracy_after", "held_out_problems"))
    if not (is_number(before) and is_number(after) and is_number(problems) and problems and history.rows.count):
        return None
    now, first = history.reward_in(history.sampled.recent()), history.first_reward
    return Evaluation(0, before, problems, first, first), Evaluation(history.step, after, problems, now, first)


def _accuracy_lost(history: History) -> str:
    """What shows that a finished run has lost its accuracy and its reward; empty where it has not."""
    around, rows = _before_and_after(history), history.sampled.recent()
    if around is None:
        return ""
    before, after = around
    least = max(COLLAPSE * before.accuracy, COLLAPSE_ERRORS * _error(before, after))
    if after.reward is None or not before.accuracy or before.accuracy - after.accuracy < least:
        return ""
    if not scale_seen(history, rows[-1]).is_near_zero(after.reward.mean):
        return ""
    return (
        f"held-out accuracy {figure(before.accuracy)} before and {figure(after.accuracy)} after, of "
        f"{figure(_problems(after))} problems; {history.reward} {figure(after.reward.mean)} in {steps(rows)}"
    )
