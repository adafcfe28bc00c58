"""Rules on the seconds: which part of a step takes too long."""

from __future__ import annotations

from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.analysis.doctor.seen import Seen, typical
from rlvr_vocab.analysis.doctor.thresholds import LIMITS
from rlvr_vocab.analysis.doctor.words import figure, share, steps
from rlvr_vocab.analysis.record import Row

_LONG = 2 * LIMITS.window
_PARTS = {
    "generation": (
        "sampling has slowed down: another process on the device, a full memory, or a sampler without vLLM",
        ("training.use_vllm=true", "training.max_completion_length=512"),
    ),
    "rewards": (
        "a reward function is slow: it calls something outside, or compares hard expressions",
        ("rewards=accuracy",),
    ),
    "update": (
        "the update has slowed down: another process on the device, memory that swaps, or checkpointed activations",
        ("training.gradient_checkpointing=false", "training.per_device_train_batch_size=4"),
    ),
}


def steps_slow(seen: Seen) -> list[Finding]:
    """Steps take much longer than they did, token for token; or scoring takes most of them."""
    return _slower_than_before(seen) or _mostly_rewards(seen)


def _slower_than_before(seen: Seen) -> list[Finding]:
    late, early = seen.recent(_LONG), seen.earliest(_LONG)
    if seen.rows < len(late) + len(early) or not late:
        return []
    before, now = typical(early, "step_time"), typical(late, "step_time")
    if not before or now is None:
        return []
    per_token = now / before / _longer(early, late)
    if per_token < LIMITS.slowdown or now - before < LIMITS.slowdown_seconds:
        return []
    growth = {part: _seconds(late, part) - _seconds(early, part) for part in _PARTS}
    part = max(growth, key=lambda name: growth[name])
    told = (
        f"step_time {figure(now)} s in {steps(late)}, {figure(before)} s in {steps(early)}: {figure(per_token)} × per "
        f"token (limit {figure(LIMITS.slowdown)} ×); {part} {growth[part]:+.2g} s"
    )
    return [_slow(seen, part, told)]


def _mostly_rewards(seen: Seen) -> list[Finding]:
    rows = seen.recent()
    whole, rewards = typical(rows, "step_time"), typical(rows, "time/rewards")
    if not whole or rewards is None or rewards < LIMITS.rewards_seconds or rewards <= LIMITS.rewards_part * whole:
        return []
    told = (
        f"time/rewards {figure(rewards)} s of step_time {figure(whole)} s in {steps(rows)}: {share(rewards / whole)} "
        f"(limit {share(LIMITS.rewards_part)})"
    )
    return [_slow(seen, "rewards", told)]


def _longer(early: list[Row], late: list[Row]) -> float:
    """How much more there is to do; never less, since a step has costs of its own."""
    before, now = typical(early, "completions/mean_length"), typical(late, "completions/mean_length")
    return max(1.0, now / before) if before and now else 1.0


def _seconds(rows: list[Row], part: str) -> float:
    generation, rewards = typical(rows, "time/generation") or 0.0, typical(rows, "time/rewards") or 0.0
    whole = typical(rows, "step_time") or 0.0
    return {"generation": generation, "rewards": rewards, "update": max(0.0, whole - generation - rewards)}[part]


def _slow(seen: Seen, part: str, told: str) -> Finding:
    cause, remedy = _PARTS[part]
    return Finding("steps_slow", f"Steps are slow: {part}", "warning", told, cause, remedy, seen.step)
