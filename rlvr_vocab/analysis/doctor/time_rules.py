"""Rules on the seconds: which part of a step takes too long."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.analysis.doctor.reward_words import is_accuracy, rewards_line, without_own
from rlvr_vocab.analysis.doctor.seen import Seen, number, values
from rlvr_vocab.analysis.doctor.thresholds import LIMITS
from rlvr_vocab.analysis.doctor.words import figure, share, steps
from rlvr_vocab.record.metrics import Row, RunFacts

_LONG = 2 * LIMITS.window
_CAUSES = {
    "generation": "sampling has slowed down: another process on the device, a full memory, or a sampler without vLLM",
    "rewards": "a reward function is slow: it calls something outside, or compares hard expressions",
    "update": "the update has slowed down: another process on the device, memory that swaps, or checkpointed "
    "activations",
}


@dataclass(frozen=True)
class _Seconds:
    """Means of a step, by part; a step that draws nothing has 0 s of generation."""

    whole: float
    parts: dict[str, float]
    tokens: float | None

    def without(self, part: str) -> float:
        return self.whole - self.parts[part]


def steps_slow(seen: Seen) -> list[Finding]:
    """Steps take much longer than they did, token for token; or scoring takes most of them."""
    return _slower_than_before(seen) or _mostly_rewards(seen)


def _slower_than_before(seen: Seen) -> list[Finding]:
    window = min(_LONG, seen.rows * seen.steps_per_row / 2)
    late_rows, early_rows = seen.recent(window), seen.earliest(window)
    early, late = _seconds(early_rows), _seconds(late_rows)
    if window < LIMITS.window or seen.rows < len(early_rows) + len(late_rows) or early is None or late is None:
        return []
    longer = _longer(early, late)
    growth = {part: seconds - early.parts[part] for part, seconds in late.parts.items()}
    part = max(growth, key=lambda name: growth[name])
    per_token = late.whole / early.whole / longer
    # Another process slows all that a CPU does alike.
    alone = late.without(part) < LIMITS.slowdown_others * longer * early.without(part)
    limit = LIMITS.slowdown_cpu if seen.facts.on_cpu and not alone else LIMITS.slowdown
    if per_token < limit or late.whole - early.whole < LIMITS.slowdown_seconds:
        return []
    told = (
        f"step_time {figure(late.whole)} s in {steps(late_rows)}, {figure(early.whole)} s in {steps(early_rows)}: "
        f"{figure(per_token)} × per token (limit {figure(limit)} ×); {part} {growth[part]:+.2g} s"
    )
    return [_slow(seen, part, told)]


def _mostly_rewards(seen: Seen) -> list[Finding]:
    rows = seen.recent()
    spent = _seconds(rows)
    if spent is None:
        return []
    whole, rewards = spent.whole, spent.parts["rewards"]
    if rewards < LIMITS.rewards_seconds or rewards <= LIMITS.rewards_part * whole:
        return []
    told = (
        f"time/rewards {figure(rewards)} s of step_time {figure(whole)} s in {steps(rows)}: {share(rewards / whole)} "
        f"(limit {share(LIMITS.rewards_part)})"
    )
    return [_slow(seen, "rewards", told)]


def _longer(early: _Seconds, late: _Seconds) -> float:
    """How much more there is to do; never less, since a step has costs of its own."""
    return max(1.0, late.tokens / early.tokens) if early.tokens and late.tokens else 1.0


def _seconds(rows: list[Row]) -> _Seconds | None:
    """Of these rows without the longest tenth: one that writes a checkpoint is no habit; None without any seconds of
    a whole or of its parts."""
    timed = sorted((row for row in rows if number(row, "step_time") is not None), key=lambda row: row["step_time"])
    kept = timed[: len(timed) - len(timed) // 10]
    parts_told = any(values(kept, name) for name in ("time/generation", "time/rewards"))
    if not kept or 2 * len(timed) < len(rows) or not parts_told:
        return None
    whole, generation, rewards = (
        math.fsum(values(kept, name)) / len(kept) for name in ("step_time", "time/generation", "time/rewards")
    )
    if whole <= 0:
        return None
    lengths = values(kept, "completions/mean_length")
    parts = {"generation": generation, "rewards": rewards, "update": max(0.0, whole - generation - rewards)}
    return _Seconds(whole, parts, math.fsum(lengths) / len(lengths) if lengths else None)


def _slow(seen: Seen, part: str, told: str) -> Finding:
    return Finding(
        "steps_slow", f"Steps are slow: {part}", "warning", told, _CAUSES[part], _remedy(seen.facts, part), seen.step
    )


def _remedy(facts: RunFacts, part: str) -> tuple[str, ...]:
    if part == "generation":
        faster = () if facts.use_vllm else ("training.use_vllm=true",)
        return (*faster, f"training.max_completion_length={max(1, facts.max_completion_length // 2)}")
    if part == "update":
        return ("training.gradient_checkpointing=false",)
    if without_own(facts):
        return without_own(facts)
    graders = [each.name for each in facts.rewards if is_accuracy(each.asked_as or each.name)]
    return (rewards_line(facts, {name: {"params": {"deadline": 1}} for name in graders}),)
