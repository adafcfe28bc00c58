"""The finding on the seconds of a step: which part of it takes too long."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rlvr_vocab.analysis.doctor.definition import Symptom, finding
from rlvr_vocab.analysis.doctor.finding import QUICKSTART, Threshold, figure, share, steps
from rlvr_vocab.analysis.doctor.history import WINDOW, History, number, values
from rlvr_vocab.analysis.doctor.reward_words import is_accuracy, rewards_line, without_own
from rlvr_vocab.record.metrics import Row, RunFacts

SLOWDOWN = Threshold(2, "× per token", "twice as long for the same tokens")
SLOWDOWN_CPU = Threshold(
    5, "× per token", "on a CPU where all parts grew: any other process takes half of it, or more", QUICKSTART
)
SLOWDOWN_OTHERS = Threshold(
    1.5, "× per token", "where the rest of a step grew less, one part is slow, and not the machine"
)
SLOWDOWN_SECONDS = Threshold(1, "seconds per step", "less is not worth mending, and any other process makes it")
REWARDS_PART = Threshold(0.3, "share of a step", "the device waits so long; healthy runs have 0.01", QUICKSTART)
REWARDS_SECONDS = Threshold(0.1, "seconds per step", "the steps of toy models take less than that")

_CAUSES = {
    "generation": "sampling has slowed down: another process on the device, a full memory, or a sampler without vLLM",
    "rewards": "a reward function is slow: it calls something outside, or compares hard expressions",
    "update": "the update has slowed down: another process on the device, memory that swaps, or checkpointed "
    "activations",
}


@finding(severity="warning", metrics="`step_time`, `time/generation`, `time/rewards`")
def steps_slow(history: History) -> Symptom | None:
    """Steps take much longer than they did, token for token, or scoring takes much of them; the part is named. On a CPU
    another process makes all parts slow alike: there that takes more."""
    return _slower_than_before(history) or _mostly_rewards(history)


def _slower_than_before(history: History) -> Symptom | None:
    window = min(2 * WINDOW, history.rows.count * history.rows.steps_per_row / 2)
    late_rows, early_rows = history.rows.recent(window), history.rows.earliest(window)
    early, late = _seconds(early_rows), _seconds(late_rows)
    if window < WINDOW or history.rows.count < len(early_rows) + len(late_rows) or early is None or late is None:
        return None
    # Never less to do, since a step has costs of its own.
    longer = max(1.0, late.tokens / early.tokens) if early.tokens and late.tokens else 1.0
    growth = {part: seconds - early.parts[part] for part, seconds in late.parts.items()}
    part = max(growth, key=lambda name: growth[name])
    per_token = late.whole / early.whole / longer
    # Another process slows all that a CPU does alike.
    alone = late.whole - late.parts[part] < SLOWDOWN_OTHERS * longer * (early.whole - early.parts[part])
    limit = SLOWDOWN_CPU if history.facts.on_cpu and not alone else SLOWDOWN
    if per_token < limit or late.whole - early.whole < SLOWDOWN_SECONDS:
        return None
    told = (
        f"step_time {figure(late.whole)} s in {steps(late_rows)}, {figure(early.whole)} s in {steps(early_rows)}: "
        f"{figure(per_token)} × per token (limit {figure(limit)} ×); {part} {growth[part]:+.2g} s"
    )
    return _slow(history.facts, part, told)


def _mostly_rewards(history: History) -> Symptom | None:
    rows = history.rows.recent()
    spent = _seconds(rows)
    if spent is None:
        return None
    whole, rewards = spent.whole, spent.parts["rewards"]
    if rewards < REWARDS_SECONDS or rewards <= REWARDS_PART * whole:
        return None
    told = (
        f"time/rewards {figure(rewards)} s of step_time {figure(whole)} s in {steps(rows)}: {share(rewards / whole)} "
        f"(limit {share(REWARDS_PART)})"
    )
    return _slow(history.facts, "rewards", told)


@dataclass(frozen=True)
class _Seconds:
    """Means of a step, by part; a step that draws nothing has 0 s of generation."""

    whole: float
    parts: dict[str, float]
    tokens: float | None


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


def _slow(facts: RunFacts, part: str, told: str) -> Symptom:
    return Symptom(told, _remedy(facts, part), _CAUSES[part], title=f"Steps are slow: {part}")


def _remedy(facts: RunFacts, part: str) -> tuple[str, ...]:
    if part == "generation":
        faster = () if facts.use_vllm else ("training.use_vllm=true",)
        return (*faster, f"training.max_completion_length={max(1, facts.max_completion_length // 2)}")
    if part == "update":
        return ("training.gradient_checkpointing=false",)
    graders = [each.name for each in facts.rewards if is_accuracy(each.asked_as or each.name)]
    return without_own(facts) or (rewards_line(facts, {name: {"params": {"deadline": 1}} for name in graders}),)
