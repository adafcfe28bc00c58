"""The forecast of a run, of all its stages together, and what steps of the real thing correct in it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rlvr_vocab.config.batches import value_of
from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.plan.architecture import Architecture
from rlvr_vocab.plan.devices import Device
from rlvr_vocab.plan.memory import memory_by_phase
from rlvr_vocab.plan.problems import ProblemsAhead, longest_met
from rlvr_vocab.plan.speed import CALIBRATED_UNCERTAINTY, UNCERTAINTY, calibrated, seconds_by_phase
from rlvr_vocab.plan.workload import Sharding, scale_of, workload_of
from rlvr_vocab.record.forecast import Forecast, Measured


@dataclass(frozen=True)
class Circumstances:
    """Where a run is to take place, and what is known of its problems and completions.

    Attributes:
        completion: mean tokens of one; None where unknown.
        shape, copies: of the model, where it has been looked at.
    """

    device: Device
    processes: int = 1
    sharding: Sharding = "none"
    ahead: ProblemsAhead = field(default_factory=ProblemsAhead)
    completion: float | None = None
    shape: Architecture | None = None
    copies: int | None = None


def forecast_of(run: RunSettings, where: Circumstances) -> Forecast:
    """What a run will take: memory of the stage that takes most, time of all.

    Raises:
        UserError: the model's shape is not at hand.
    """
    stages = [stage.run for stage in run.stages] or [run]
    parts = [_of_stage(each, where) for each in stages]
    most = max(parts, key=lambda part: part.peak)
    if len(parts) == 1:
        return most
    steps = None if any(part.steps is None for part in parts) else sum(part.steps or 0 for part in parts)
    return replace(
        most,
        step_seconds=_mean_seconds(parts),
        step_range=(min(part.step_range[0] for part in parts), max(part.step_range[1] for part in parts)),
        steps=steps,
        epochs=None if any(part.epochs is None for part in parts) else sum(part.epochs or 0 for part in parts),
    )


def corrected(run: RunSettings, where: Circumstances, measured: Measured) -> Forecast:
    """The forecast after steps of the real thing were measured: their lengths, seconds and memory in place of ours."""
    own = forecast_of(run, replace(where, completion=where.completion or measured.completion))
    same = forecast_of(run, replace(where, completion=measured.completion))
    seconds = calibrated(own.step_seconds, measured.seconds, same.step_seconds)
    total, off = sum(seconds.values()), CALIBRATED_UNCERTAINTY
    memory = {
        phase: {**parts, "correction": measured.memory[phase] - own.peak_of(phase)}
        if phase in measured.memory
        else parts
        for phase, parts in own.memory.items()
    }
    return replace(own, memory=memory, step_seconds=seconds, step_range=(total / off, total * off), calibrated=True)


def _of_stage(run: RunSettings, where: Circumstances) -> Forecast:
    work = workload_of(
        run,
        has_bf16=where.device.has_bf16,
        processes=where.processes,
        sharding=where.sharding,
        shape=where.shape,
        copies=where.copies,
    )
    scale, device, usual = scale_of(run, work, where.ahead.count, where.completion), where.device, work
    if where.ahead.prompts:
        group, prompts = value_of(run.training.grpo, "num_generations"), where.ahead.prompts
        asked = (scale.steps or math.inf) * scale.completions / group
        # Prompts that are asked together are padded to the longest of them.
        usual = replace(work, prompt=longest_met(prompts, work.drawn / group))
        work = replace(work, prompt=longest_met(prompts, asked))
    low, middle, high = (seconds_by_phase(usual, device, tokens) for tokens in scale.completion)
    return Forecast(
        device=device.name,
        device_memory=device.memory,
        processes=work.processes,
        trained_weights=work.trained_weights,
        frozen_weights=work.frozen_weights,
        memory=memory_by_phase(work, device),
        step_seconds=middle,
        step_range=(sum(low.values()) / UNCERTAINTY, sum(high.values()) * UNCERTAINTY),
        steps=scale.steps,
        epochs=scale.epochs,
        problems=scale.problems,
        completions=scale.completions,
        completion=scale.completion,
        prompt=work.prompt,
        sampled=scale.completions * scale.completion[1],
        trained=scale.completions * work.iterations * scale.completion[1],
    )


def _mean_seconds(parts: Sequence[Forecast]) -> Mapping[str, float]:
    """Of a step, over the stages by their steps."""
    weights = [part.steps or 1 for part in parts]
    phases = dict.fromkeys(phase for part in parts for phase in part.step_seconds)
    return {
        phase: sum(weight * part.step_seconds.get(phase, 0.0) for weight, part in zip(weights, parts, strict=True))
        / sum(weights)
        for phase in phases
    }
