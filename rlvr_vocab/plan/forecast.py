"""The forecast of a run, of all its stages together: memory and seconds; and its grades against what a run took."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.errors import UserError
from rlvr_vocab.files import json_text, read_json_if_there
from rlvr_vocab.plan.architecture import Architecture
from rlvr_vocab.plan.devices import GIB, Device
from rlvr_vocab.plan.memory import BACKWARD, FORWARD, GENERATION, LOGPROBS, OPTIMIZER, memory_by_phase
from rlvr_vocab.plan.workload import (
    ProblemsAhead,
    Sharding,
    Workload,
    longest_met,
    problems_by_configuration,
    workload_of,
)
from rlvr_vocab.record.metrics import MEMORY_OF_PHASE, PHASES

FORECAST = "forecast.json"
# Of the peak: what products of a trainer reach, and what a stream of weights does of the bandwidth.
_TRAINING, _STREAMING = 0.35, 0.6
# Seconds that Python and the launching of kernels take whatever the sizes: for a layer, in a forward pass and in a
# token of `generate`; for a token beside its layers; for a step of vLLM.
_LAUNCHES_OF_A_LAYER, _LAUNCHES_OF_A_TOKEN, _STEP_OF_VLLM = 0.8e-3, 4e-3, 4e-3
UNCERTAINTY = 2.0  # a forecast of seconds may be off by this factor, either way


@dataclass(frozen=True)
class Forecast:
    """Bytes by phase and part, and seconds by phase, of one process.

    Attributes:
        memory: at the peak of each phase, by part.
        step_seconds: of an optimisation step by phase, at the mean length of completions.
        step_range: seconds of a step, from short completions and a fast machine to long ones and a slow one.
        steps, epochs, problems: None where their number is not known.
        completion: tokens of one: low, mean, high; `sampled`, `trained`: tokens of a step, of all processes.
    """

    device: str
    device_memory: float
    processes: int
    trained_weights: int
    frozen_weights: int
    memory: Mapping[str, Mapping[str, float]]
    step_seconds: Mapping[str, float]
    step_range: tuple[float, float]
    steps: int | None
    epochs: float | None
    problems: int | None
    completions: float
    completion: tuple[float, float, float]
    prompt: int
    sampled: float
    trained: float

    @property
    def peak_phase(self) -> str:
        return max(self.memory, key=self.peak_of)

    @property
    def peak(self) -> float:
        """Bytes."""
        return self.peak_of(self.peak_phase)

    def peak_of(self, phase: str) -> float:
        return sum(self.memory[phase].values())

    @property
    def seconds(self) -> float:
        """Of a step."""
        return sum(self.step_seconds.values())

    @property
    def total_range(self) -> tuple[float, float] | None:
        """Seconds of all steps; None where nobody knows how many there are."""
        if self.steps is None:
            return None
        low, high = self.step_range
        return self.steps * low, self.steps * high

    @property
    def figures(self) -> dict[str, float]:
        """Memory by phase (GiB) and seconds of a step by phase and in all, as `measured_figures` names them."""
        memory = {f"memory, {phase}": self.peak_of(phase) / GIB for phase in self.memory}
        seconds = {f"seconds, {phase}": value for phase, value in self.step_seconds.items()}
        return {**memory, **seconds, "seconds, step": self.seconds}

    def to_json(self) -> str:
        derived = {"peak_phase": self.peak_phase, "peak": self.peak, "total_range": self.total_range}
        return json_text({**asdict(self), **derived})


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


def _of_stage(run: RunSettings, where: Circumstances) -> Forecast:
    work = workload_of(
        run,
        has_bf16=where.device.has_bf16,
        processes=where.processes,
        sharding=where.sharding,
        shape=where.shape,
        copies=where.copies,
    )
    device, usual, grpo = where.device, work, run.training.grpo
    problems = where.ahead.count or problems_by_configuration(run)
    steps, epochs, completions = _length(run, work, problems)
    most = float(work.completion)
    completion = (most / 4, most / 2, most) if where.completion is None else (where.completion,) * 3
    if where.ahead.prompts:
        group, prompts = grpo["num_generations"], where.ahead.prompts
        asked = (steps or math.inf) * completions / group
        # Prompts that are asked together are padded to the longest of them.
        usual = replace(work, prompt=longest_met(prompts, work.drawn / group))
        work = replace(work, prompt=longest_met(prompts, asked))
    low, middle, high = (seconds_by_phase(usual, device, tokens) for tokens in completion)
    return Forecast(
        device=device.name,
        device_memory=device.memory,
        processes=work.processes,
        trained_weights=work.trained_weights,
        frozen_weights=work.frozen_weights,
        memory=memory_by_phase(work, device),
        step_seconds=middle,
        step_range=(sum(low.values()) / UNCERTAINTY, sum(high.values()) * UNCERTAINTY),
        steps=steps,
        epochs=epochs,
        problems=problems,
        completions=completions,
        completion=completion,
        prompt=work.prompt,
        sampled=completions * completion[1],
        trained=completions * work.iterations * completion[1],
    )


def _length(run: RunSettings, work: Workload, problems: int | None) -> tuple[int | None, float | None, float]:
    """Steps of a run, passes over its problems, and completions sampled for a step by all processes."""
    grpo, trained = run.training.grpo, work.at_once * work.batches * work.processes
    of_epoch = None if problems is None else problems * grpo["num_generations"] * work.iterations / trained
    steps = grpo["max_steps"]
    if steps is None and of_epoch is not None:
        steps = max(1, round(grpo["num_train_epochs"] * of_epoch))
    epochs = None if steps is None or of_epoch is None else steps / of_epoch
    return steps, epochs, trained / work.iterations


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


def read_forecast(folder: Path) -> Forecast | None:
    """The forecast of a run; None for a run without a readable one, which only its grades depend on."""
    names = Forecast.__dataclass_fields__
    try:
        content = read_json_if_there(folder / FORECAST)
        return None if content is None else Forecast(**{name: content[name] for name in names if name in content})
    except (UserError, TypeError):  # damaged, or of a version with other fields
        return None


def measured_figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Memory by phase (GiB) and seconds of a step by phase and in all, from the logged rows of a run.

    Seconds are those of the second half: the first step makes the optimizer's state, and is slower than later ones.
    """
    steps = [row for row in rows if "step_time" in row]
    last, figures = steps[len(steps) // 2 :], {}
    for key in PHASES:
        peaks = [row[MEMORY_OF_PHASE[key]] for row in steps if MEMORY_OF_PHASE[key] in row]
        if peaks and max(peaks):
            figures[f"memory, {key.removeprefix('time/')}"] = max(peaks)
    seconds = {f"seconds, {key.removeprefix('time/')}": fmean(row.get(key, 0.0) for row in last) for key in PHASES}
    figures |= {name: value for name, value in seconds.items() if value}
    return {**figures, "seconds, step": sum(seconds.values())}
