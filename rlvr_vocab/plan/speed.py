"""Seconds of an optimisation step by phase, from the work in it and what a device can do of that."""

from __future__ import annotations

from collections.abc import Mapping

from rlvr_vocab.plan.devices import Device
from rlvr_vocab.plan.memory import BACKWARD, FORWARD, GENERATION, LOGPROBS, OPTIMIZER
from rlvr_vocab.plan.workload import Workload

# Of the peak: what products of a trainer reach, and what a stream of weights does of the bandwidth.
_TRAINING, _STREAMING = 0.35, 0.6
# Seconds that Python and the launching of kernels take whatever the sizes: for a layer, in a forward pass and in a
# token of `generate`; for a token beside its layers; for a step of vLLM.
_LAUNCHES_OF_A_LAYER, _LAUNCHES_OF_A_TOKEN, _STEP_OF_VLLM = 0.8e-3, 4e-3, 4e-3
# A forecast that nothing has been measured for may be off by so much, either way; a calibrated one by so little.
UNCERTAINTY, CALIBRATED_UNCERTAINTY = 2.0, 1.25


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
