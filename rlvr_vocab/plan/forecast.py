"""The forecast of a run, of all its stages together: memory and seconds; what measured steps correct in it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.plan.architecture import Architecture
from rlvr_vocab.plan.devices import Device
from rlvr_vocab.plan.memory import BACKWARD, FORWARD, GENERATION, LOGPROBS, OPTIMIZER, memory_by_phase
from rlvr_vocab.plan.outcome import Forecast, Measured
from rlvr_vocab.plan.problems import ProblemsAhead, longest_met
from rlvr_vocab.plan.workload import Sharding, Workload, scale_of, workload_of

# Of the peak: what products of a trainer reach, and what a stream of weights does of the bandwidth.
_TRAINING, _STREAMING = 0.35, 0.6
# Seconds that Python and the launching of kernels take whatever the sizes: for a layer, in a forward pass and in a
# token of `generate`; for a token beside its layers; for a step of vLLM.
_LAUNCHES_OF_A_LAYER, _LAUNCHES_OF_A_TOKEN, _STEP_OF_VLLM = 0.8e-3, 4e-3, 4e-3
# A forecast that nothing has been measured for may be off by so much, either way; a calibrated one by so little.
UNCERTAINTY, CALIBRATED_UNCERTAINTY = 2.0, 1.25


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
        group, prompts = run.training.grpo["num_generations"], where.ahead.prompts
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


def seconds_by_phase(work: Workload, device: Device, completion: float) -> dict[str, float]:
    """Of one optimisation step, where completions are so long in the mean."""
    rate = _rate(work, device)
    completions = work.at_once * work.batches
    launches = work.batches * _LAUNCHES_OF_A_LAYER * work.architecture.layers
    of_pass = completions * forward_flops(work, completion) / rate + launches
    passes = (1 if work.scored_before else 0) + (1 if work.scores_reference else 0)
    found = {
        GENERATION: _generation(work, device, completion) * completions / (work.drawn * work.iterations),
        LOGPROBS: passes * of_pass / work.iterations,
        FORWARD: of_pass,
        BACKWARD: of_pass * (3 if work.checkpointing else 2) * (0.75 if work.lora is not None else 1),
        # Weight, gradient and two moments, read and written.
        OPTIMIZER: 7 * work.trained_weights * work.trained_bytes / work.shards / (device.bandwidth * _STREAMING),
    }
    return {phase: seconds for phase, seconds in found.items() if seconds}


def calibrated(
    seconds: Mapping[str, float], measured: Mapping[str, float], forecast: Mapping[str, float]
) -> dict[str, float]:
    """Seconds by phase, each corrected by what was measured over what was forecast for the same work.

    Phases that were measured and not foreseen count as they are.
    """
    found = {phase: value * measured[phase] / forecast[phase] for phase, value in seconds.items() if phase in measured}
    return {**found, **{phase: value for phase, value in measured.items() if phase not in seconds}}


def forward_flops(work: Workload, completion: float) -> float:
    """Of one completion with its prompt, scored or sampled: its prompt goes through the layers and not the head."""
    shape, tokens = work.architecture, work.prompt + completion
    attention = 2 * tokens * tokens * shape.query_width * shape.layers  # the half that is causal, two products
    return 2 * (tokens * (shape.active_weights + work.adapter_weights) + completion * _head_weights(work)) + attention


def _rate(work: Workload, device: Device) -> float:
    """FLOP/s that a trainer's products reach, in the type that they are computed in."""
    peak = device.flops if work.half else device.flops_float32
    return peak if device.is_cpu else _TRAINING * peak


def _head_weights(work: Workload) -> float:
    return work.architecture.hidden * work.architecture.rows + work.copy_weights


def _generation(work: Workload, device: Device, completion: float) -> float:
    """Seconds for all completions that are drawn together; the longest decides how many steps that takes.

    A server of vLLM, which the trainer waits for, is taken to be one such device.
    """
    shape, width = work.architecture, 2 if work.half else 4
    steps = completion if work.vllm_share is not None else min(1.5 * completion, work.completion)
    weights = (shape.active_weights + _head_weights(work)) * (work.trained_bytes if work.lora is None else width)
    cache = work.drawn * (work.prompt + completion / 2) * shape.layers * shape.key_width * 2 * width
    streamed = (weights + cache) / (device.bandwidth * _STREAMING)
    launches = _LAUNCHES_OF_A_LAYER * shape.layers + _LAUNCHES_OF_A_TOKEN
    overhead = launches if work.vllm_share is None else _STEP_OF_VLLM
    computed = work.drawn * forward_flops(work, completion) / completion / _rate(work, device)
    of_step = streamed + computed + overhead if device.is_cpu else max(streamed, computed, overhead)
    return steps * of_step
