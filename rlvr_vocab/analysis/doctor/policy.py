"""Findings on the policy: how far it has gone, how sure of itself it is, and whether what samples is what trains."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from rlvr_vocab.analysis.doctor.finding import GUIDE, QUICKSTART, Threshold, figure, steps
from rlvr_vocab.analysis.doctor.history import FEWEST_ROWS, RISEN, WINDOW, History, median, values
from rlvr_vocab.analysis.doctor.rule import (
    INCOHERENT_POLICY,
    UNSTABLE_POLICY,
    Symptom,
    lower_rate,
    more_entropy,
    rule,
    stronger_kl_penalty,
)

_SHORT = WINDOW / 2

KL = Threshold(0.5, "nats per token", "further from the initial model, words change and not only odds", GUIDE)
KL_EXPLOSION = Threshold(5.0, "nats per token", "ten times the limit: another model")


@rule(
    severity="warning",
    title="The KL to the initial model is above its limit",
    cause="the learning rate is high for this run's length, or a hole in the reward is being exploited",
    metrics="`kl` (`training.kl_log_steps` or `training.beta`)",
)
def kl_high(history: History) -> Symptom | None:
    """The KL to the initial model is above its limit."""
    return _kl_between(history, KL, KL_EXPLOSION)


@rule(
    severity="error",
    title="The KL to the initial model explodes",
    cause="the learning rate is too high: the policy has become another model",
    metrics="the same",
    explains=UNSTABLE_POLICY,
)
def kl_exploding(history: History) -> Symptom | None:
    """The KL is ten times above its limit."""
    return _kl_between(history, KL_EXPLOSION, math.inf)


def _kl_between(history: History, limit: float, most: float) -> Symptom | None:
    if not history.rows.recent() or history.first_kl is None or history.last_kl is None:
        return None
    (first_step, first), (step, kl) = history.first_kl, history.last_kl
    dense = values(history.rows.recent(_SHORT), "kl")
    if len(dense) >= FEWEST_ROWS:
        kl = statistics.median(dense)
    if not limit < kl <= most:
        return None
    return Symptom(
        f"kl {figure(kl)} at step {step}, {figure(first)} at step {first_step} (limit {figure(limit)} nats per token)",
        (lower_rate(history.facts), stronger_kl_penalty(history.facts)),
        step=step,
    )


ENTROPY_LOW = Threshold(
    0.2, "× the beginning", "healthy runs end at 0.5 × or more; below a fifth nothing else is tried", QUICKSTART
)
ENTROPY_LOW_NATS = Threshold(0.1, "nats per token", "above it, one token in fifty is still another")
ENTROPY_NONE = Threshold(0.01, "nats per token", "every completion of a group is the same, from the start")


@rule(
    severity="error",
    title="The entropy collapses",
    metrics="`entropy`, `entropy/thinking`",
    explains=tuple(name for name in INCOHERENT_POLICY if name != "mode_collapse"),
)
def entropy_collapsing(history: History) -> Symptom | None:
    """The policy has stopped to try anything else, and is not right either."""
    facts = history.facts
    if _is_right(history) or _is_rising(history):
        return None
    # The end of an answer is certain in a healthy model, so the answering part alone says nothing when it falls.
    for metric, first, now in _entropies(history, "entropy", "entropy/thinking"):
        if now >= ENTROPY_NONE and (now >= ENTROPY_LOW * max(first) or now >= ENTROPY_LOW_NATS):
            continue
        cold = facts.temperature < 0.8
        return Symptom(
            f"{metric} {figure(now)} in {steps(history.rows.recent(_SHORT))}, {figure(max(first))} at the beginning "
            f"(limit {figure(ENTROPY_LOW)} × the beginning and {figure(ENTROPY_LOW_NATS)} nats per token)",
            (*(("training.temperature=1.0",) if cold else ()), lower_rate(facts), more_entropy(facts)),
            "the temperature is so low that completions hardly differ"
            if cold
            else "the policy has settled on one way to write, before it was right: the learning rate is too high, or "
            "the reward pays for one text",
        )
    return None


def _is_right(history: History) -> bool:
    """Whether nearly every completion gets the full reward."""
    reward = median(history.sampled.recent(_SHORT), "reward")
    return reward is not None and history.scale.is_near_full(reward)


def _is_rising(history: History) -> bool:
    """Whether the reward still rises: then the policy grows sure of what is right."""
    rows = history.sampled.recent()
    half = len(rows) // 2
    before, now = history.reward_in(rows[:half]), history.reward_in(rows[half:])
    return before is not None and now is not None and now.is_above(before, RISEN)


ENTROPY_HIGH = Threshold(2, "× the beginning", "entropy falls in a healthy run", GUIDE)
ENTROPY_RISE = Threshold(0.5, "nats per token", "from near 0, twice as much is still little")


@rule(
    severity="error",
    title="The entropy explodes",
    cause="the learning rate is too high: the updates destroy what the model knew",
    metrics="`entropy` and both regions",
    explains=INCOHERENT_POLICY,
)
def entropy_exploding(history: History) -> Symptom | None:
    """The policy falls apart into chance."""
    for metric, first, now in _entropies(history, "entropy", "entropy/thinking", "entropy/answering"):
        if now > ENTROPY_HIGH * min(first) and now > min(first) + ENTROPY_RISE:
            return Symptom(
                f"{metric} {figure(now)} in {steps(history.rows.recent(_SHORT))}, {figure(min(first))} at the "
                f"beginning (limit {figure(ENTROPY_HIGH)} × and {figure(ENTROPY_RISE)} nats more)",
                (lower_rate(history.facts), "training.entropy_coef=0.0"),
            )
    return None


def _entropies(history: History, *metrics: str) -> Iterator[tuple[str, list[float], float]]:
    """Of each metric with tokens enough, at the beginning and now: its first values, and the median of the last."""
    first_rows, last_rows = history.rows.earliest(FEWEST_ROWS), history.rows.recent(_SHORT)
    sampled = (history.sampled.earliest(_SHORT), history.sampled.recent(_SHORT))
    for metric in metrics if history.rows.recent() else ():
        first, now = values(first_rows, metric), median(last_rows, metric)
        _, _, region = metric.partition("/")
        has_tokens = not region or all(
            history.has_tokens(rows, median(rows, f"{region}/mean_length")) for rows in sampled
        )
        if first and now is not None and has_tokens:
            yield metric, first, now


LOGP_GAP = Threshold(
    0.05, "nats per token", "`sampling/logp_gap`: rounding makes 1e-6 in float32 and 0.02 in bfloat16", "design"
)
LOGP_GAP_VLLM = Threshold(0.1, "nats per token", "another engine with other kernels, in bfloat16", "TRL's guides")


@rule(
    severity="error",
    title="Sampler and trainer disagree on log-probabilities",
    cause="the sampler has other weights, another temperature, another precision or another region bias than the "
    "trainer: importance ratios are wrong from the first update",
    metrics="`sampling/logp_gap`; with vLLM `sampling/sampling_logp_difference/mean` too",
    explains=(*UNSTABLE_POLICY, "kl_exploding"),
)
def sampler_disagrees(history: History) -> Symptom | None:
    """What is sampled is not what is trained."""
    rows, vllm = history.sampled.recent(), history.facts.use_vllm
    limit = LOGP_GAP_VLLM if vllm else LOGP_GAP
    for metric in ("sampling/logp_gap", "sampling/sampling_logp_difference/mean"):
        gap = median(rows, metric)
        if gap is not None and gap > limit:
            return Symptom(
                f"{metric} {figure(gap)} in {steps(rows)} (limit {figure(limit)} nats per token)",
                ("training.use_vllm=false",)
                if vllm
                else ("training.bf16=false", "model.model_kwargs.torch_dtype=fp32"),
            )
    return None
