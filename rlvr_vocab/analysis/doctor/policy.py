"""Findings on the policy and its updates: completions, KL, entropy, sampler, gradients, weights that do not move."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from rlvr_vocab.analysis.doctor.finding import INCOHERENT, NO_SIGNAL, UNSTABLE, Symptom, figure, rule, share, steps
from rlvr_vocab.analysis.doctor.history import (
    FEWEST_ROWS,
    NEARLY_ALL,
    RISEN,
    WINDOW,
    History,
    median,
    number,
    recurs,
    values,
)
from rlvr_vocab.analysis.doctor.learning import NO_RATE

_CLIPPED = 0.3  # share of completions (docs/guide.md): cut off, they cannot score
_CLOSED = 0.5  # share of completions: healthy above 0.9, doubtful below 0.7 (docs/guide.md)


@rule(
    severity="warning",
    title="Completions are cut off",
    cause="the completion limit does not hold the thinking and the answer, or the model no longer ends",
    remedy="training.max_completion_length: twice as much; rewards: add overlong",
    explains=("reward_flat", "format_reward_zero", "mode_collapse"),
)
def completions_cut_off(history: History) -> Symptom | None:
    rows = history.sampled.recent()
    clipped, closed, thinking, answering = (
        median(rows, name)
        for name in ("completions/clipped_ratio", "thinking/closed", "thinking/mean_length", "answering/mean_length")
    )
    # Where most of the text is no thinking, few completions may think at all.
    unclosed = closed is not None and closed < _CLOSED and thinking and thinking >= (answering or 0.0)
    shown = f", thinking/closed {share(closed)}" if unclosed and closed is not None else ""
    if clipped is not None and clipped > _CLIPPED:
        return Symptom(
            f"completions/clipped_ratio {share(clipped)} in {steps(rows)} (limit {share(_CLIPPED)}), at "
            f"{history.facts.max_completion_length} tokens{shown}",
            severity="error" if clipped > NEARLY_ALL else "warning",
        )
    if not unclosed:
        return None
    return Symptom(
        f"{shown.removeprefix(', ')} in {steps(rows)} (limit {share(_CLOSED)})",
        "Thinking is not closed",
        f"the model does not know {history.facts.think_tags[1]}: no answer, no reward",
        "dataset.open_thinking=model; warmup.max_steps: show it; training.max_completion_length: twice as much",
        "error",
    )


_DUPLICATES = 0.85  # of what a group can have: a healthy group of eight has 5 of its 7 possible repeats at most
_SHARED = 0.5  # share of completions: half of the texts do not depend on the problem


@rule(
    severity="error",
    title="Completions repeat each other",
    cause="the policy writes one text whatever the problem, because the temperature is low, the reward pays for it, or "
    "the learning rate is too high",
    remedy="training.temperature=1.0; training.learning_rate: a quarter of it; training.num_generations: larger "
    "groups; rewards: add diversity with a small weight",
    explains=(*NO_SIGNAL, "reward_flat"),
)
def mode_collapse(history: History) -> Symptom | None:
    rows, size = history.sampled.recent(), history.facts.num_generations
    most = _DUPLICATES * (size - 1) / size
    repeated, shared, reward = (
        median(rows, name) for name in ("completions/duplicates", "completions/shared", "reward")
    )
    if size < 2 or (reward is not None and history.scale.is_near_full(reward)):
        return None
    shown = []
    if repeated is not None and repeated > most:
        shown.append(f"completions/duplicates {share(repeated)} (limit {share(most)} for groups of {size})")
    if shared is not None and shared > _SHARED:
        shown.append(f"completions/shared {share(shared)} (limit {share(_SHARED)})")
    return Symptom(f"{' and '.join(shown)} in {steps(rows)}") if shown else None


_KL = 0.5  # nats per token (docs/guide.md): further from the initial model, words change and not only odds


@rule(
    severity="warning",
    title="The KL to the initial model is above its limit",
    cause="the learning rate is high for this run's length, or a hole in the reward is being exploited",
    remedy="training.learning_rate: a quarter of it; training.beta: raise it, such as 0.01",
)
def kl_high(history: History) -> Symptom | None:
    if not history.rows.recent() or history.first_kl is None or history.last_kl is None:
        return None
    (first_step, first), (step, kl) = history.first_kl, history.last_kl
    dense = values(history.rows.recent(WINDOW / 2), "kl")
    if len(dense) >= FEWEST_ROWS:
        kl = statistics.median(dense)
    if kl <= _KL:
        return None
    return Symptom(
        f"kl {figure(kl)} at step {step}, {figure(first)} at step {first_step} (limit {_KL} nats per token)", step=step
    )


_ENTROPY_LOW = 0.2  # of the beginning: healthy runs end at half or more
_ENTROPY_LOW_NATS = 0.1  # per token: above it, one token in fifty is still another
_ENTROPY_NONE = 0.01  # nats per token: every completion of a group is the same, from the start


@rule(
    severity="error",
    title="The entropy collapses",
    cause="the policy has settled on one way to write, before it was right: the temperature is low, the learning rate "
    "is too high, or the reward pays for one text",
    remedy="training.temperature=1.0; training.learning_rate: a quarter of it; training.entropy_coef: raise it, such "
    "as 0.001",
    explains=tuple(name for name in INCOHERENT if name != "mode_collapse"),
)
def entropy_collapsing(history: History) -> Symptom | None:
    rows, last = history.sampled.recent(), history.sampled.recent(WINDOW / 2)
    reward, half = median(last, "reward"), len(rows) // 2
    before, now = history.reward_in(rows[:half]), history.reward_in(rows[half:])
    if reward is not None and history.scale.is_near_full(reward):
        return None
    if before is not None and now is not None and now.is_above(before, RISEN):
        return None
    # The end of an answer is certain in a healthy model, so the answering part alone says nothing when it falls.
    for metric, first, entropy in _entropies(history, "entropy", "entropy/thinking"):
        if entropy < _ENTROPY_NONE or (entropy < _ENTROPY_LOW * first and entropy < _ENTROPY_LOW_NATS):
            return Symptom(
                f"{metric} {figure(entropy)} in {steps(history.rows.recent(WINDOW / 2))}, {figure(first)} at the "
                f"beginning (limit {_ENTROPY_LOW} × the beginning and {_ENTROPY_LOW_NATS} nats per token)"
            )
    return None


def _entropies(history: History, *metrics: str) -> Iterator[tuple[str, float, float]]:
    """Of each metric with tokens enough: the highest of its first values, and the median of the last."""
    first_rows, last_rows = history.rows.earliest(FEWEST_ROWS), history.rows.recent(WINDOW / 2)
    sampled = (history.sampled.earliest(WINDOW / 2), history.sampled.recent(WINDOW / 2))
    for metric in metrics if history.rows.recent() else ():
        first, now = values(first_rows, metric), median(last_rows, metric)
        _, _, region = metric.partition("/")
        has_tokens = not region or all(
            history.has_tokens(rows, median(rows, f"{region}/mean_length")) for rows in sampled
        )
        if first and now is not None and has_tokens:
            yield metric, max(first), now


# Nats per token: rounding makes 1e-6 in float32 and 0.02 in bfloat16; another engine has other kernels (TRL's guides).
_LOGP_GAP, _LOGP_GAP_VLLM = 0.05, 0.1


@rule(
    severity="error",
    title="Sampler and trainer disagree on log-probabilities",
    cause="the sampler has other weights, another temperature, another precision or another region bias than the "
    "trainer: importance ratios are wrong from the first update",
    remedy="training.use_vllm=false, or training.bf16=false with model.model_kwargs.torch_dtype=fp32",
    explains=UNSTABLE,
)
def sampler_disagrees(history: History) -> Symptom | None:
    rows = history.sampled.recent()
    limit = _LOGP_GAP_VLLM if history.facts.use_vllm else _LOGP_GAP
    for metric in ("sampling/logp_gap", "sampling/sampling_logp_difference/mean"):
        gap = median(rows, metric)
        if gap is not None and gap > limit:
            return Symptom(f"{metric} {figure(gap)} in {steps(rows)} (limit {limit} nats per token)")
    return None


@rule(
    severity="error",
    title="Loss or gradient is not a number",
    cause="numbers have left the range of their type, or the learning rate has broken the weights",
    remedy="training.learning_rate: a quarter of it; model.model_kwargs.torch_dtype=fp32",
    explains=UNSTABLE,
)
def loss_not_finite(history: History) -> Symptom | None:
    """A single bad value is usual where fp16 looks for its scale."""
    rows = history.rows.recent()
    for metric in ("loss", "grad_norm"):
        bad = [row for row in rows if metric in row and number(row, metric) is None]
        if recurs(len(bad), rows):
            return Symptom(
                f"{metric} is NaN or infinite in {len(bad)} of {len(rows)} rows, first at step {bad[0]['step']}",
                step=int(bad[0]["step"]),
            )
    return None


_MOVED, _ROUNDED = 0.01, 0.5  # share of values: AdamW moves every value that has a gradient
_LEAST_RATE = 1e-12
_RATE_JUDGED = 0.1  # of `training.learning_rate`: the ends of a warm-up and of a decay may round away


@rule(
    severity="error",
    title="The parameters do not move",
    cause="the optimizer does not hold the parameters that train, or the updates are too small for their type: the "
    "learning rate is too low, or the weights have 16 bits",
    remedy="training.learning_rate: raise it, such as 5e-6; model.pure_bf16=false",
    explains=("reward_flat",),
)
def weights_not_moving(history: History) -> Symptom | None:
    """A rate of 0, a frozen adapter, or weights that round updates away."""
    asked = history.facts.learning_rate
    rows = history.rows.recent()
    rates = values(rows, "learning_rate")
    if rows and len(rates) == len(rows) and max(rates) <= (NO_RATE if asked <= NO_RATE else _LEAST_RATE):
        return Symptom(
            f"learning_rate {figure(max(rates))} in {steps(rows)}, training.learning_rate={figure(asked)}",
            "The learning rate is next to 0",
            "training.learning_rate is too low to move anything"
            if asked <= NO_RATE
            else "the schedule has ended before the run",
            "training.learning_rate: such as 5e-6; training.lr_scheduler_type=constant_with_warmup",
        )
    least = max(_LEAST_RATE, _RATE_JUDGED * asked)
    rows = [row for row in rows if (number(row, "learning_rate") or 0) > least and (number(row, "grad_norm") or 0) > 0]
    moved = median(rows, "weights/moved")
    if len(rows) < FEWEST_ROWS or moved is None or moved >= _ROUNDED:
        return None
    some = moved >= _MOVED
    return Symptom(
        f"weights/moved {share(moved)} in {steps(rows)}, at learning_rate {figure(rows[-1]['learning_rate'])} (limit "
        f"{share(_ROUNDED)})",
        "Most updates round away" if some else "",
        severity="warning" if some else None,
    )
