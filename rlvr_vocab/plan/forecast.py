"""The forecast of a run, of all its stages together: memory and seconds; and its grade by what the run took."""

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
from rlvr_vocab.plan.problems import ProblemsAhead, longest_met, problems_by_configuration
from rlvr_vocab.plan.workload import Sharding, Workload, architecture_of_run, copies_of
from rlvr_vocab.record.metrics import MEMORY_OF_PHASE, PHASES

FORECAST = "forecast.json"
_USUAL_PROMPT = 256  # tokens, where neither prompts nor their limit are known
# Shares of a card's peak: products of a trainer reach the first, a stream of weights the second of the bandwidth.
_TRAINING, _STREAMING = 0.35, 0.6
# Seconds that Python and the launching of kernels take whatever the sizes: for a layer, in a forward pass and in a
# token of `generate`; for a token beside its layers; for a step of vLLM.
_LAUNCHES_OF_A_LAYER, _LAUNCHES_OF_A_TOKEN, _STEP_OF_VLLM = 0.8e-3, 4e-3, 4e-3
UNCERTAINTY = 2.0  # a forecast of seconds may be off by this factor, either way


@dataclass(frozen=True)
class Circumstances:
    """The machine of a run, and what is known of its problems and completions.

    Attributes:
        completion: mean tokens of one; None where unknown.
        shape, copies: of the model, where it has been read.
    """

    device: Device
    processes: int = 1
    sharding: Sharding = "none"
    ahead: ProblemsAhead = field(default_factory=ProblemsAhead)
    completion: float | None = None
    shape: Architecture | None = None
    copies: int | None = None


@dataclass(frozen=True)
class Forecast:
    """Bytes by phase and part, and seconds by phase, of one process.

    Attributes:
        memory: at the peak of each phase, by part.
        step_seconds: of an optimisation step by phase, at the mean length of completions.
        step_range: seconds of a step, from short completions and a fast machine to long ones and a slow one.
        steps, epochs, problems: None where their number is unknown.
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

    def peak_of(self, phase: str) -> float:
        return sum(self.memory[phase].values())

    @property
    def peak_phase(self) -> str:
        return max(self.memory, key=self.peak_of)

    @property
    def peak(self) -> float:
        """Bytes."""
        return self.peak_of(self.peak_phase)

    @property
    def seconds(self) -> float:
        """Of a step."""
        return sum(self.step_seconds.values())

    @property
    def total_range(self) -> tuple[float, float] | None:
        """Seconds of all steps; None where their number is unknown."""
        return None if self.steps is None else (self.steps * self.step_range[0], self.steps * self.step_range[1])

    def to_json(self) -> str:
        """The fields, and `figures`: memory by phase in GiB and seconds of a step, as `measured_figures` names them."""
        figures = {f"memory, {phase}": self.peak_of(phase) / GIB for phase in self.memory}
        figures |= {f"seconds, {phase}": value for phase, value in self.step_seconds.items()}
        derived = {"peak_phase": self.peak_phase, "peak": self.peak, "total_range": self.total_range}
        return json_text({**asdict(self), **derived, "figures": {**figures, "seconds, step": self.seconds}})


def forecast_of(run: RunSettings, where: Circumstances) -> Forecast:
    """Memory of the stage that takes most, and time of all.

    Raises:
        UserError: the model's shape is not at hand.
    """
    parts = [_of_stage(each, where) for each in [stage.run for stage in run.stages] or [run]]
    most = max(parts, key=lambda part: part.peak)
    if len(parts) == 1:
        return most
    weights = [part.steps or 1 for part in parts]
    phases = dict.fromkeys(phase for part in parts for phase in part.step_seconds)
    return replace(
        most,
        step_seconds={
            phase: fmean([part.step_seconds.get(phase, 0.0) for part in parts], weights=weights) for phase in phases
        },
        step_range=(min(part.step_range[0] for part in parts), max(part.step_range[1] for part in parts)),
        steps=None if any(part.steps is None for part in parts) else sum(part.steps or 0 for part in parts),
        epochs=None if any(part.epochs is None for part in parts) else sum(part.epochs or 0 for part in parts),
    )


def workload_of(run: RunSettings, where: Circumstances) -> Workload:
    """The work of each process, with prompts of the longest length that the configuration allows.

    Raises:
        UserError: the model's shape is not at hand.
    """
    shape = where.shape or architecture_of_run(run)
    copies = copies_of(run, shape) if where.copies is None else where.copies
    prompt = run.training.max_prompt_length or _USUAL_PROMPT
    return Workload(run, shape, copies, prompt, where.device.has_bf16, where.processes, where.sharding)


def _of_stage(run: RunSettings, where: Circumstances) -> Forecast:
    device, grpo = where.device, run.training.grpo
    usual = work = workload_of(run, where)
    problems = where.ahead.count or problems_by_configuration(run)
    trained = work.at_once * work.batches * work.processes
    completions = trained / work.iterations
    of_epoch = None if problems is None else problems * grpo["num_generations"] * work.iterations / trained
    steps: int | None = grpo["max_steps"]
    if steps is None and of_epoch is not None:
        steps = max(1, round(grpo["num_train_epochs"] * of_epoch))
    most = float(work.completion)
    completion = (most / 4, most / 2, most) if where.completion is None else (where.completion,) * 3
    if where.ahead.prompts:
        group, prompts = grpo["num_generations"], where.ahead.prompts
        # Prompts that are asked together are padded to the longest of them.
        usual = replace(work, prompt=longest_met(prompts, work.drawn / group))
        work = replace(work, prompt=longest_met(prompts, (steps or math.inf) * completions / group))
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
        epochs=None if steps is None or of_epoch is None else steps / of_epoch,
        problems=problems,
        completions=completions,
        completion=completion,
        prompt=work.prompt,
        sampled=completions * completion[1],
        trained=trained * completion[1],
    )


def seconds_by_phase(work: Workload, device: Device, completion: float) -> dict[str, float]:
    """Of one optimisation step, by the mean length of completions."""
    completions, layers = work.at_once * work.batches, work.architecture.layers
    of_pass = completions * _forward_flops(work, completion) / _flops(work, device)
    of_pass += work.batches * layers * _LAUNCHES_OF_A_LAYER
    found = {
        GENERATION: _generation(work, device, completion) * completions / (work.drawn * work.iterations),
        LOGPROBS: (work.scored_before + work.scores_reference) * of_pass / work.iterations,
        FORWARD: of_pass,
        BACKWARD: of_pass * (3 if work.checkpointing else 2) * (0.75 if work.lora is not None else 1),
        # Weight, gradient and two moments, read and written.
        OPTIMIZER: 7 * work.trained_weights * work.trained_bytes / work.shards / (device.bandwidth * _STREAMING),
    }
    return {phase: seconds for phase, seconds in found.items() if seconds}


def _forward_flops(work: Workload, completion: float) -> float:
    """Of one completion with its prompt, scored or sampled: its prompt goes through the layers and not the head."""
    shape, tokens = work.architecture, work.prompt + completion
    attention = 2 * tokens * tokens * shape.query_width * shape.layers  # the half that is causal, two products
    return 2 * (tokens * (shape.linear_weights + work.adapter_weights) + completion * _head_weights(work)) + attention


def _flops(work: Workload, device: Device) -> float:
    """FLOP/s that a trainer's products reach, in the type that they are computed in."""
    peak = device.flops_float32 if work.halved_by is None else device.flops
    return peak if device.is_cpu else _TRAINING * peak


def _head_weights(work: Workload) -> int:
    return work.architecture.hidden * work.architecture.rows + work.copy_weights


def _generation(work: Workload, device: Device, completion: float) -> float:
    """Seconds for all completions that are drawn together; the longest decides how many steps that takes.

    A server of vLLM, for which the trainer waits, is taken to be one such device.
    """
    shape, by_vllm = work.architecture, work.vllm_share is not None
    steps = completion if by_vllm else min(1.5 * completion, work.completion)
    of_weight = work.trained_bytes if work.lora is None else work.width
    weights = (shape.linear_weights + _head_weights(work)) * of_weight
    cache = work.drawn * (work.prompt + completion / 2) * shape.layers * shape.key_width * 2 * work.width
    streamed = (weights + cache) / (device.bandwidth * _STREAMING)
    overhead = _STEP_OF_VLLM if by_vllm else _LAUNCHES_OF_A_LAYER * shape.layers + _LAUNCHES_OF_A_TOKEN
    computed = work.drawn * _forward_flops(work, completion) / completion / _flops(work, device)
    return steps * (streamed + computed + overhead if device.is_cpu else max(streamed, computed, overhead))


def graded_forecast(folder: Path, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each figure of a run's forecast beside the measured one; none without a forecast, or a step."""
    try:
        figures = (read_json_if_there(folder / FORECAST) or {}).get("figures", {})
    except UserError:  # nothing but the grade depends on it
        figures = {}
    measured = measured_figures(rows)
    return [
        {"name": name, "forecast": round(foreseen, 3), "measured": round(measured[name], 3)}
        for name, foreseen in figures.items()
        if name in measured
    ]


def measured_figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Memory by phase (GiB) and seconds of a step by phase and in all, from the logged rows of a run.

    Seconds are those of the second half: the first step makes the optimizer's state, and is slower than later ones.
    """
    steps, figures = [row for row in rows if "step_time" in row], dict[str, float]()
    if not steps:
        return {}
    for key in PHASES:
        peaks = [row[MEMORY_OF_PHASE[key]] for row in steps if MEMORY_OF_PHASE[key] in row]
        if peaks and max(peaks):
            figures[f"memory, {key.removeprefix('time/')}"] = max(peaks)
    last = steps[len(steps) // 2 :]
    seconds = {f"seconds, {key.removeprefix('time/')}": fmean(row.get(key, 0.0) for row in last) for key in PHASES}
    figures |= {name: value for name, value in seconds.items() if value}
    return {**figures, "seconds, step": sum(seconds.values())}
