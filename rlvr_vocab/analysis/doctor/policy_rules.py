"""Rules on the policy: how far it has gone, how sure of itself it is, and whether what samples is what trains."""

from __future__ import annotations

import math
import statistics

from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.analysis.doctor.remedies import lower_rate, more_entropy, stronger_pull
from rlvr_vocab.analysis.doctor.reward_scale import scale_seen
from rlvr_vocab.analysis.doctor.seen import Seen, level, typical, values
from rlvr_vocab.analysis.doctor.thresholds import LIMITS
from rlvr_vocab.analysis.doctor.words import figure, steps

_SHORT = LIMITS.window / 2
# The end of an answer is certain in a healthy model, so the answering part alone says nothing when it falls.
_FALLING, _RISING = ("entropy", "entropy/thinking"), ("entropy", "entropy/thinking", "entropy/answering")


def kl_too_far(seen: Seen) -> list[Finding]:
    """The policy has left the initial model."""
    kl = _latest_kl(seen)
    if kl is None or kl <= LIMITS.kl:
        return []
    step, first = seen.kl[-1][0], seen.first_kl or seen.kl[0]
    remedies = (lower_rate(seen.facts), stronger_pull(seen.facts))
    told = f"kl {figure(kl)} at step {step}, {figure(first[1])} at step {first[0]}"
    if kl > LIMITS.kl_explosion:
        return [
            Finding(
                "kl_exploding",
                "The KL to the initial model explodes",
                "error",
                f"{told} (limit {figure(LIMITS.kl_explosion)} nats per token)",
                "the learning rate is too high: the policy has become another model",
                remedies,
                step,
            )
        ]
    return [
        Finding(
            "kl_high",
            "The KL to the initial model is above its limit",
            "warning",
            f"{told} (limit {figure(LIMITS.kl)} nats per token)",
            "the learning rate is high for this run's length, or a hole in the reward is being exploited",
            remedies,
            step,
        )
    ]


def _latest_kl(seen: Seen) -> float | None:
    """Median of the last rows, where the KL is logged often; else the last value. None for a run that is too young."""
    if not seen.recent() or not seen.kl:
        return None
    dense = values(seen.recent(_SHORT), "kl")
    return statistics.median(dense) if len(dense) >= LIMITS.fewest_rows else seen.kl[-1][1]


def entropy_collapsing(seen: Seen) -> list[Finding]:
    """The policy has stopped to try anything else, and has not solved the problems either."""
    late, rewarded = seen.recent(_SHORT), seen.sampled(_SHORT)
    reward = typical(rewarded, seen.reward)
    if not seen.recent() or (reward is not None and scale_seen(seen, rewarded[-1]).is_near_full(reward)):
        return []
    if _is_rising(seen):
        return []
    for metric in _FALLING:
        start, now = _highest(seen, metric), typical(late, metric)
        if start is None or now is None or not _is_measured(seen, metric):
            continue
        fallen = now < LIMITS.entropy_low * start and now < LIMITS.entropy_low_nats
        if fallen or now < LIMITS.entropy_none:
            return [_collapse(seen, f"{metric} {figure(now)} in {steps(late)}, {figure(start)} at the beginning")]
    return []


def _is_rising(seen: Seen) -> bool:
    """Whether the reward still rises: then the policy grows sure of what is right."""
    rows = seen.sampled()
    half = len(rows) // 2
    before, now = level(rows[:half], seen.reward), level(rows[half:], seen.reward)
    if before is None or now is None:
        return False
    return now.mean - before.mean > LIMITS.risen * math.hypot(now.error, before.error)


def _collapse(seen: Seen, told: str) -> Finding:
    limit = f"limit {figure(LIMITS.entropy_low)} × the beginning and {figure(LIMITS.entropy_low_nats)} nats per token"
    warm = () if seen.facts.temperature >= 0.8 else ("training.temperature=1.0",)
    return Finding(
        "entropy_collapsing",
        "The entropy collapses",
        "error",
        f"{told} ({limit})",
        "the temperature is so low that completions hardly differ"
        if warm
        else "the policy has settled on one way to write, before it was right: the learning rate is too high, or the "
        "reward pays for one text",
        (*warm, lower_rate(seen.facts), more_entropy(seen.facts)),
        seen.step,
    )


def entropy_exploding(seen: Seen) -> list[Finding]:
    """The policy falls apart into chance."""
    late = seen.recent(_SHORT)
    if not seen.recent():
        return []
    for metric in _RISING:
        start, now = _lowest(seen, metric), typical(late, metric)
        if start is None or now is None or not _is_measured(seen, metric):
            continue
        if now > LIMITS.entropy_high * start and now > start + LIMITS.entropy_rise:
            return [
                Finding(
                    "entropy_exploding",
                    "The entropy explodes",
                    "error",
                    f"{metric} {figure(now)} in {steps(late)}, {figure(start)} at the beginning (limit "
                    f"{figure(LIMITS.entropy_high)} × and {figure(LIMITS.entropy_rise)} nats more)",
                    "the learning rate is too high: the updates destroy what the model knew",
                    (lower_rate(seen.facts), "training.entropy_coef=0.0"),
                    seen.step,
                )
            ]
    return []


def _is_measured(seen: Seen, metric: str) -> bool:
    """Whether there are tokens enough of the region that an entropy is of, now and at the beginning."""
    _, _, region = metric.partition("/")
    if not region:
        return True
    length = f"{region}/mean_length"
    return all(
        seen.has_tokens(rows, typical(rows, length)) for rows in (seen.sampled(_SHORT), seen.first_sampled(_SHORT))
    )


def _highest(seen: Seen, metric: str) -> float | None:
    return max(values(seen.earliest(LIMITS.fewest_rows), metric), default=None)


def _lowest(seen: Seen, metric: str) -> float | None:
    return min(values(seen.earliest(LIMITS.fewest_rows), metric), default=None)


def sampler_disagrees(seen: Seen) -> list[Finding]:
    """What is sampled is not what is trained."""
    rows, facts = seen.sampled(), seen.facts
    limit = LIMITS.logp_gap_vllm if facts.use_vllm else LIMITS.logp_gap
    for metric in ("sampling/logp_gap", "sampling/sampling_logp_difference/mean"):
        gap = typical(rows, metric) if rows else None
        if gap is not None and gap > limit:
            return [
                Finding(
                    "sampler_disagrees",
                    "Sampler and trainer disagree on log-probabilities",
                    "error",
                    f"{metric} {figure(gap)} in {steps(rows)} (limit {figure(limit)} nats per token)",
                    "the sampler has other weights, another temperature, another precision or another region bias "
                    "than the trainer: importance ratios are wrong from the first update",
                    ("training.use_vllm=false",)
                    if facts.use_vllm
                    else ("training.bf16=false", "model.model_kwargs.torch_dtype=fp32"),
                    seen.step,
                )
            ]
    return []
