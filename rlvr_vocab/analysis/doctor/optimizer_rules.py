"""Rules on the updates: figures that are no numbers, a rate of 0, clipping, weights that stay where they were."""

from __future__ import annotations

import statistics

from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.analysis.doctor.remedies import larger_batches
from rlvr_vocab.analysis.doctor.seen import Seen, rate_of, typical, values
from rlvr_vocab.analysis.doctor.thresholds import LIMITS
from rlvr_vocab.analysis.doctor.words import figure, share, steps, typed
from rlvr_vocab.record.metrics import Row

_USUAL_RATE, _LEAST_RATE = 5e-6, 1e-12


def not_finite(seen: Seen) -> list[Finding]:
    """Loss or gradient are no numbers; a single one is what fp16's loss scaling looks for."""
    rows = seen.recent()
    for metric in ("loss", "grad_norm"):
        bad = [row for row in rows if metric in row and not values([row], metric)]
        if len(bad) >= max(2, LIMITS.recurring * len(rows)):
            return [
                Finding(
                    "loss_not_finite",
                    "Loss or gradient is not a number",
                    "error",
                    f"{metric} is NaN or infinite in {len(bad)} of {len(rows)} rows, first at step {bad[0]['step']}",
                    "numbers have left the range of their type, or the learning rate has broken the weights",
                    (
                        f"training.learning_rate={typed((seen.facts.learning_rate or _USUAL_RATE) / 4)}",
                        "model.model_kwargs.torch_dtype=fp32",
                    ),
                    int(bad[0]["step"]),
                )
            ]
    return []


def learning_rate_zero(seen: Seen) -> list[Finding]:
    """The schedule gives nothing, beyond the first step of a warm-up and the last of a decay; or hardly anything."""
    rows, asked = seen.recent(), seen.facts.learning_rate
    set_to_zero = asked <= LIMITS.rate_none
    rates = [rate_of(row) for row in rows]
    if not rows or any(rate is None or rate > (LIMITS.rate_none if set_to_zero else _LEAST_RATE) for rate in rates):
        return []
    largest = max(rate or 0.0 for rate in rates)
    return [
        Finding(
            "learning_rate_zero",
            "The learning rate is 0" if largest <= _LEAST_RATE else "The learning rate is next to 0",
            "error",
            f"learning_rate {figure(largest)} in {steps(rows)}, training.learning_rate="
            f"{typed(asked)}, training.lr_scheduler_type={seen.facts.lr_scheduler_type}",
            f"training.learning_rate is {'0' if asked <= _LEAST_RATE else 'too low to move anything'}"
            if set_to_zero
            else "the schedule has ended before the run",
            (f"training.learning_rate={typed(_USUAL_RATE)}",)
            if set_to_zero
            else ("training.lr_scheduler_type=constant_with_warmup",),
            seen.step,
        )
    ]


def gradients_clipped(seen: Seen) -> list[Finding]:
    """Every gradient is far longer than the limit, which then decides the size of the steps."""
    long, limit = seen.recent(2 * LIMITS.window), seen.facts.max_grad_norm
    # Where each single one is so long, ten steps will do.
    rows = next(
        (rows for rows, least in ((long, 1.0), (seen.recent(), LIMITS.grad_norm)) if _far(rows, limit, least)), None
    )
    if rows is None:
        return []
    norms = _norms(rows)
    usual = statistics.median(norms)
    return [
        Finding(
            "gradients_clipped",
            "Gradients are far above the limit at every step",
            "warning",
            f"grad_norm from {figure(min(norms))} to {figure(max(norms))}, median {figure(usual)} in {steps(rows)}; "
            f"training.max_grad_norm={figure(limit)} (limit of the median {figure(LIMITS.grad_norm)} ×)",
            "the limit is far below what these batches give, so that a step of chance counts as much as a clear one",
            (f"training.max_grad_norm={typed(usual)}", larger_batches(seen.facts)),
            seen.step,
        )
    ]


def _norms(rows: list[Row]) -> list[float]:
    """Those of rows that had a gradient: groups without spread have none to clip."""
    return [norm for norm in values(rows, "grad_norm") if norm > 0]


def _far(rows: list[Row], limit: float, least: float) -> bool:
    """Whether all norms are above so many times the limit, and the usual one is far above it."""
    norms = _norms(rows)
    if not limit or not norms or 2 * len(norms) < len(rows):
        return False
    return min(norms) > least * limit and statistics.median(norms) >= LIMITS.grad_norm * limit


def weights_not_moving(seen: Seen) -> list[Finding]:
    """Updates with a gradient and a learning rate leave the weights as they are, all of them or most."""
    # What a warm-up or a decay gives at its end may well round away.
    least = max(_LEAST_RATE, LIMITS.rate_judged * seen.facts.learning_rate)
    rows = [
        row
        for row in seen.recent()
        if (rate_of(row) or 0.0) > least and any(norm > 0 for norm in values([row], "grad_norm"))
    ]
    if len(rows) < LIMITS.fewest_rows:
        return []
    moved = typical(rows, "weights/moved")
    if moved is None or moved >= LIMITS.rounded:
        return []
    told = f"weights/moved {share(moved)} in {steps(rows)}, at learning_rate {figure(rate_of(rows[-1]) or 0.0)}"
    faster = f"training.learning_rate={typed(max(4 * seen.facts.learning_rate, _USUAL_RATE))}"
    halved = seen.facts.pure_bf16
    remedy = ("model.pure_bf16=false", faster) if halved else (faster,)
    if moved < LIMITS.moved:
        return [
            Finding(
                "weights_not_moving",
                "The parameters do not move",
                "error",
                f"{told} (limit {share(LIMITS.moved)})",
                "the optimizer does not hold the parameters that train, or the updates are too small for their type: "
                + ("weights of 16 bits" if halved else "the learning rate is too low"),
                remedy,
                seen.step,
            )
        ]
    return [
        Finding(
            "updates_rounded_away",
            "Most updates round away",
            "warning",
            f"{told} (limit {share(LIMITS.rounded)})",
            f"most updates are smaller than half of the last digit of the weights: "
            f"{'these are in 16 bits' if halved else 'the learning rate is too low'}",
            remedy,
            seen.step,
        )
    ]
