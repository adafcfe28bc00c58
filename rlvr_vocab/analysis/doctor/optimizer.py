"""Findings on the updates: figures that are no numbers, a rate of 0, clipping, weights that stay where they were."""

from __future__ import annotations

import statistics

from rlvr_vocab.analysis.doctor.finding import QUICKSTART, Threshold, figure, share, steps, typed
from rlvr_vocab.analysis.doctor.history import FEWEST_ROWS, WINDOW, History, median, number, recurs, values
from rlvr_vocab.analysis.doctor.learning import RATE_NONE
from rlvr_vocab.analysis.doctor.rule import NOTHING_LEARNED, UNSTABLE_POLICY, Symptom, larger_batches, rule

_USUAL_RATE, _LEAST_RATE = 5e-6, 1e-12


@rule(
    severity="error",
    title="Loss or gradient is not a number",
    cause="numbers have left the range of their type, or the learning rate has broken the weights",
    metrics="`loss`, `grad_norm`",
    explains=(*UNSTABLE_POLICY, "kl_exploding"),
)
def loss_not_finite(history: History) -> Symptom | None:
    """Loss or gradient are no numbers; a single one is what the loss scaling of fp16 looks for."""
    rows = history.rows.recent()
    for metric in ("loss", "grad_norm"):
        bad = [row for row in rows if metric in row and number(row, metric) is None]
        if recurs(len(bad), rows):
            rate = (history.facts.learning_rate or _USUAL_RATE) / 4
            return Symptom(
                f"{metric} is NaN or infinite in {len(bad)} of {len(rows)} rows, first at step {bad[0]['step']}",
                (f"training.learning_rate={typed(rate)}", "model.model_kwargs.torch_dtype=fp32"),
                step=int(bad[0]["step"]),
            )
    return None


@rule(severity="error", metrics="`learning_rate`", explains=NOTHING_LEARNED)
def learning_rate_zero(history: History) -> Symptom | None:
    """The rate is 0 for longer than the first step of a warm-up, or was set to next to nothing."""
    rows, asked = history.rows.recent(), history.facts.learning_rate
    set_to_zero = asked <= RATE_NONE
    rates = values(rows, "learning_rate")
    if not rates or len(rates) < len(rows) or max(rates) > (RATE_NONE if set_to_zero else _LEAST_RATE):
        return None
    if set_to_zero:
        cause = f"training.learning_rate is {'0' if asked <= _LEAST_RATE else 'too low to move anything'}"
        remedy = f"training.learning_rate={typed(_USUAL_RATE)}"
    else:
        cause = "the schedule has ended before the run"
        remedy = "training.lr_scheduler_type=constant_with_warmup"
    return Symptom(
        f"learning_rate {figure(max(rates))} in {steps(rows)}, training.learning_rate={typed(asked)}, "
        f"training.lr_scheduler_type={history.facts.lr_scheduler_type}",
        (remedy,),
        cause,
        title=f"The learning rate is {'0' if max(rates) <= _LEAST_RATE else 'next to 0'}",
    )


GRAD_NORM = Threshold(
    5,
    "× `max_grad_norm`",
    "healthy runs have medians of 1.0 to 1.4 ×, single norms reach 3.3 ×; AdamW forgives a constant factor",
    QUICKSTART,
)


@rule(
    severity="warning",
    title="Gradients are far above the limit at every step",
    cause="the limit is far below what these batches give, so that a step of chance counts as much as a clear one",
    metrics="`grad_norm` of twenty steps",
    explains=("reward_flat",),
)
def gradients_clipped(history: History) -> Symptom | None:
    """Every gradient is far longer than `training.max_grad_norm`, five times at the median; twice or three times is
    usual in small batches."""
    limit, rows = history.facts.max_grad_norm, history.rows.recent(2 * WINDOW)
    # Groups without spread have no gradient to clip.
    norms = [norm for norm in values(rows, "grad_norm") if norm > 0]
    if not limit or not norms or 2 * len(norms) < len(rows):
        return None
    usual = statistics.median(norms)
    if min(norms) <= limit or usual < GRAD_NORM * limit:
        return None
    return Symptom(
        f"grad_norm from {figure(min(norms))} to {figure(max(norms))}, median {figure(usual)} in {steps(rows)}; "
        f"training.max_grad_norm={figure(limit)} (limit of the median {figure(GRAD_NORM)} ×)",
        (f"training.max_grad_norm={typed(usual)}", larger_batches(history.facts)),
    )


MOVED = Threshold(0.01, "share of values", "`weights/moved`: AdamW moves every value that has a gradient", "design")
ROUNDED = Threshold(0.5, "share of values", "most updates are smaller than the type can hold", "design, bf16 weights")
RATE_JUDGED = Threshold(0.1, "× `training.learning_rate`", "the ends of a warm-up and of a decay may round away")


@rule(
    severity="error",
    title="The parameters do not move",
    metrics="`weights/moved`",
    explains=("reward_flat", "updates_rounded_away"),
)
def weights_not_moving(history: History) -> Symptom | None:
    """Updates with a gradient and a rate leave the weights as they are."""
    cause = "the optimizer does not hold the parameters that train, or the updates are too small for their type: "
    cause += "weights of 16 bits" if history.facts.pure_bf16 else "the learning rate is too low"
    return _moved_between(history, -1.0, MOVED, cause)


@rule(
    severity="warning",
    title="Most updates round away",
    metrics="`weights/moved`",
    explains=("reward_flat",),
)
def updates_rounded_away(history: History) -> Symptom | None:
    """Most of them do, as with `model.pure_bf16=true`; the ends of a warm-up and a decay do not count."""
    cause = "most updates are smaller than half of the last digit of the weights: "
    cause += "these are in 16 bits" if history.facts.pure_bf16 else "the learning rate is too low"
    return _moved_between(history, MOVED, ROUNDED, cause)


def _moved_between(history: History, least: float, limit: float, cause: str) -> Symptom | None:
    """The symptom that updates move a share of the weights from `least` on and below `limit`."""
    facts = history.facts
    # What a warm-up or a decay gives at its end may well round away.
    least_rate = max(_LEAST_RATE, RATE_JUDGED * facts.learning_rate)
    rows = [
        row
        for row in history.rows.recent()
        if (number(row, "learning_rate") or 0.0) > least_rate and (number(row, "grad_norm") or 0.0) > 0
    ]
    moved = median(rows, "weights/moved")
    if len(rows) < FEWEST_ROWS or moved is None or not least <= moved < limit:
        return None
    faster = f"training.learning_rate={typed(max(4 * facts.learning_rate, _USUAL_RATE))}"
    return Symptom(
        f"weights/moved {share(moved)} in {steps(rows)}, at learning_rate {figure(rows[-1]['learning_rate'])} (limit "
        f"{share(limit)})",
        ("model.pure_bf16=false", faster) if facts.pure_bf16 else (faster,),
        cause,
    )
