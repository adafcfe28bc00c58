"""Findings on learning: a reward that does not rise, that falls, or that rises without held-out accuracy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from rlvr_vocab.analysis.doctor.finding import NO_SIGNAL, Symptom, figure, rule, steps
from rlvr_vocab.analysis.doctor.history import (
    WINDOW,
    Estimate,
    Evaluation,
    History,
    median,
    values,
)
from rlvr_vocab.record.metrics import is_number

_FLAT_LEAST = 20.0  # steps after the warm-up of the learning rate: a gain takes a while
_FLAT_WINDOW = 50.0  # steps: the first and the last so many are compared
# A gain above so many `reward_std` is excluded, after 100 steps and before (simulated: docs/reading_runs.md) ...
_FLAT_LONG, _FLAT_SHORT = 0.1, 0.06
# ... and where the policy has hardly left the initial model: by its KL in nats, or at such a rate.
_FLAT_STILL, _NO_KL, NO_RATE = 0.5, 0.001, 1e-8


@rule(
    severity="warning",
    title="The reward does not rise",
    cause="the reward follows chance, or something else that updates cannot change; or the learning rate is too low",
    remedy="training.learning_rate: four times as much; training.num_generations: larger groups; rewards: try them "
    "with rlvr-vocab score",
)
def reward_flat(history: History) -> Symptom | None:
    logged = history.rows.count * history.rows.steps_per_row
    half = min(logged / 2, _FLAT_WINDOW)
    early_rows, late_rows = history.sampled.earliest(half), history.sampled.recent(half)
    early, late, spread = history.reward_in(early_rows), history.reward_in(late_rows), median(late_rows, "reward_std")
    if history.rows_since_warmup < history.rows.rows_for(_FLAT_LEAST) or not (early and late and spread):
        return None
    if history.has_risen or history.sampled.count < len(early_rows) + len(late_rows) - 1:  # they may share one
        return None
    still = _standing_still(history)
    excluded = spread * (_FLAT_STILL if still else _FLAT_LONG if logged >= 2 * _FLAT_WINDOW else _FLAT_SHORT)
    error = 2 * math.hypot(early.error, late.error)
    most = late.mean - early.mean + error
    # A fall by luck must not pass for certainty.
    if max(most, error) > excluded or history.scale.is_near_full(early.mean):
        return None
    return Symptom(
        f"{history.reward_name} {figure(early.mean)} in {steps(early_rows)}, {figure(late.mean)} in "
        f"{steps(late_rows)}: a gain of at most {figure(max(most, 0.0))} (two standard errors), at reward_std "
        f"{figure(spread)}{still}",
        cause="the updates are too small to be seen: the learning rate is too low" if still else "",
    )


def _standing_still(history: History) -> str:
    """Evidence that the policy has hardly left the initial model; empty without any."""
    step, kl = history.last_kl or (0, 0.0)
    if step > _FLAT_LEAST and kl < _NO_KL:
        return f"; kl {figure(kl)} at step {step} (limit {figure(_NO_KL)})"
    rate = history.facts.learning_rate
    return f"; training.learning_rate={figure(rate)}" if 0 < rate < NO_RATE else ""


_LOST = 0.5  # of the best window
_LOST_ERRORS = 4.0  # standard errors: the best of many windows is partly luck


@rule(
    severity="error",
    title="The reward has fallen and not come back",
    cause="the learning rate is too high: such a fall does not heal",
    remedy="training.learning_rate: a quarter of it; training.beta: raise it, such as 0.01",
    explains=(
        *NO_SIGNAL,
        *("reward_flat", "format_reward_zero", "mode_collapse", "kl_high", "completions_cut_off"),
    ),
)
def reward_collapsed(history: History) -> Symptom | None:
    rows = history.sampled.recent()
    now = history.reward_in(rows)
    if now is None:
        return None
    now = _with_noise(history, now, len(rows))
    for best, where in _best_windows(history, len(rows)):
        if best.mean > 0 and now.mean <= _LOST * best.mean and best.is_above(now, _LOST_ERRORS):
            return Symptom(
                f"{history.reward_name} {figure(now.mean)} in {steps(rows)}, after {figure(best.mean)} in {where} "
                f"(limit {_LOST} ×)"
            )
    return None


def _best_windows(history: History, length: int) -> Iterator[tuple[Estimate, str]]:
    """The best window of the usual length, and the best short one of the beginning.

    At a far too high rate the reward is gone before a window is full. So few rows get the noise of all rows.
    """
    if history.best is not None:
        yield _with_noise(history, history.best, length), f"the {length} rows up to step {history.best_step}"
    first, short = history.sampled.beginning(WINDOW), len(history.sampled.beginning())
    parts = [first[start : start + short] for start in range(len(first) - short + 1)]
    means = [math.fsum(found) / short for part in parts if len(found := values(part, "reward")) == short]
    if means and len(means) == len(parts):
        best = max(range(len(means)), key=lambda place: means[place])
        yield Estimate(means[best], history.reward_noise / math.sqrt(short)), steps(parts[best])


def _with_noise(history: History, window: Estimate, length: int) -> Estimate:
    """With the noise of all rows where its own are more alike, which some of many windows are by chance."""
    return Estimate(window.mean, max(window.error, history.reward_noise / math.sqrt(length)))


_FALL = 0.03  # accuracy, or standard deviations of a reward: smaller falls are nothing
_FALL_ERRORS = 2.0  # standard errors of the difference, at this number of problems
_ENOUGH_TO_PAIR = 4


@rule(
    severity="error",
    title="The reward rises while held-out answers get worse",
    cause="the problems, or a hole in the reward, are being learned instead of the task: read the best-paid "
    "completions with rlvr-vocab samples order=highest",
    remedy="training.beta: raise it, such as 0.01; training.max_steps: stop at the best evaluation; rewards: close "
    "the hole",
)
def held_out_accuracy_falls(history: History) -> Symptom | None:
    """Over four evaluations, or from before the run to after it."""
    around, evaluations = _before_and_after(history), list(history.evaluations)
    if around is not None:
        return _fallen(history, *around)
    if len(evaluations) < _ENOUGH_TO_PAIR:
        return None
    # The best of many single ones is partly luck; the pair before the last one shares an evaluation with it.
    *earlier, _, last = [_both(*pair) for pair in pairwise(evaluations)]
    return _fallen(history, max(earlier, key=lambda both: both.value), last)


def _both(one: Evaluation, other: Evaluation) -> Evaluation:
    """Two evaluations as one, with the reward of the second."""
    spread = None if one.deviation is None or other.deviation is None else max(one.deviation, other.deviation)
    value, problems = (one.value + other.value) / 2, one.problems + other.problems
    return other._replace(value=value, problems=problems, deviation=spread)


def _error(one: Evaluation, other: Evaluation) -> float:
    """Standard error of the difference of two; of accuracies with one more right and one more wrong problem in each."""
    variances = []
    for each in (one, other):
        if each.deviation is not None:
            variances.append(each.deviation**2 / max(1, each.problems))
            continue
        part = (each.value * each.problems + 1) / (each.problems + 2)
        variances.append(max(0.0, part * (1 - part) / max(1, each.problems - 1)))  # percentages are no shares
    return math.sqrt(sum(variances))


def _fallen(history: History, best: Evaluation, last: Evaluation) -> Symptom | None:
    # Those of another stage are rewards of other functions.
    before, now = best.reward if best.stage == last.stage else last.first_reward, last.reward
    error, fall = _error(best, last), best.value - last.value
    least, measured = (_FALL, "accuracy") if last.deviation is None else (_FALL * last.deviation, "reward")
    if before is None or now is None or fall <= least or fall < _FALL_ERRORS * error:
        return None
    if not now.is_above(before, _FALL_ERRORS):
        return None
    return Symptom(
        f"eval/{measured} {figure(best.value)} up to step {best.step}, {figure(last.value)} at step {last.step} "
        f"(standard error of the difference {figure(error)}); {history.reward_name} {figure(before.mean)} and then "
        f"{figure(now.mean)}",
        step=last.step,
    )


def _before_and_after(history: History) -> tuple[Evaluation, Evaluation] | None:
    """The measurements of a finished run: accuracy, or reward where nothing is right or wrong."""
    summary = history.summary or {}
    name = "accuracy" if is_number(summary.get("accuracy_before")) else "reward"
    before, after, problems = (summary.get(key) for key in (f"{name}_before", f"{name}_after", "held_out_problems"))
    if not (is_number(before) and is_number(after) and is_number(problems) and problems and history.rows.count):
        return None
    deviations: list[Any] = [None, None]
    if name == "reward":
        deviations = [summary.get(f"reward_std_{when}") for when in ("before", "after")]
        if not all(map(is_number, deviations)):
            return None
    now, first = history.reward_in(history.sampled.recent()), history.first_reward
    return (
        Evaluation(0, before, problems, first, first, deviation=deviations[0]),
        Evaluation(history.step, after, problems, now, first, deviation=deviations[1]),
    )
