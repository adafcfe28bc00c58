"""The forecast of a run, of all its stages together, and what steps of the real thing correct in it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rlvr_vocab.config.batches import value_of
from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.plan.architecture import Architecture
from rlvr_vocab.plan.devices import Device
from rlvr_vocab.plan.memory import main_memory, memory_by_phase
from rlvr_vocab.plan.problems import ProblemsAhead, longest_met
from rlvr_vocab.plan.speed import CALIBRATED_UNCERTAINTY, UNCERTAINTY, calibrated, seconds_by_phase
from rlvr_vocab.plan.workload import Scale, Sharding, Workload, scale_of, workload_of
from rlvr_vocab.record.forecast import Forecast, Measured

_CHECKPOINTS = "checkpoints"


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
    # The end of a stage is a checkpoint, whatever `save_strategy` says.
    parts = [_of_stage(each, where, least_checkpoints=1 if run.stages else 0) for each in stages]
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
        disk={name: (sum if name == _CHECKPOINTS else max)(part.disk[name] for part in parts) for name in most.disk},
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


def _of_stage(run: RunSettings, where: Circumstances, *, least_checkpoints: int) -> Forecast:
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
        disk=_disk(run, work, scale, least_checkpoints),
        main_memory=None if device.is_cpu else work.processes * main_memory(work),
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


def _disk(run: RunSettings, work: Workload, scale: Scale, least_checkpoints: int) -> dict[str, float]:
    """Bytes of what the run leaves: models have a row for each id, whatever they are made of while they train."""
    shape, grpo = work.architecture, run.training.grpo
    whole = (shape.weights + work.copies * shape.hidden * shape.tables) * (
        work.trained_bytes if work.lora is None else work.frozen_bytes
    )
    saved = whole if work.lora is None else 4 * work.trained_weights
    checkpoint = saved + (0.0 if value_of(grpo, "save_only_model") else work.optimizer_state)
    return {
        "initial model": whole,
        _CHECKPOINTS: max(least_checkpoints, _checkpoints(grpo, scale.steps)) * checkpoint,
        "final model": whole + (saved if work.lora is not None else 0.0),
    }


def _checkpoints(grpo: Mapping[str, object], steps: int | None) -> int:
    """How many are there at once, where one is written before an old one goes."""
    if value_of(grpo, "save_strategy") == "no":
        return 0
    every, kept = value_of(grpo, "save_steps"), value_of(grpo, "save_total_limit")
    every = every * (steps or 1) if every < 1 else every  # a share of all steps
    written = 1 if steps is None else max(1, math.ceil(steps / max(1, every)))
    return min(written, kept + 1) if kept is not None else int(written)
