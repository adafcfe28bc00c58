"""The forecast of a run, all stages together: memory and seconds; and its comparison with measured figures."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from rlvr_vocab.config.sections import stages_of
from rlvr_vocab.errors import UserError
from rlvr_vocab.files import read_json_if_there
from rlvr_vocab.plan.devices import GIB
from rlvr_vocab.plan.memory import BACKWARD, FORWARD, GENERATION, LOGPROBS, OPTIMIZER, memory_by_phase
from rlvr_vocab.plan.workload import Workload, configured_problems
from rlvr_vocab.record.metrics import MEMORY_OF_PHASE, PHASES

logger = logging.getLogger(__name__)

FORECAST = "forecast.json"
# Shares of a card's peak that a trainer reaches: of its FLOP/s, and of its bandwidth when weights are read.
_TRAINING, _STREAMING = 0.35, 0.6
# Seconds of Python and kernel launches, at any size: for a layer, in a forward pass or for a token of `generate`; for
# a token beside its layers; for a step of vLLM.
_LAUNCHES_OF_A_LAYER, _LAUNCHES_OF_A_TOKEN, _STEP_OF_VLLM = 0.8e-3, 4e-3, 4e-3
UNCERTAINTY = 2.0  # a forecast of seconds may be off by this factor in either direction


@dataclass(frozen=True)
class Forecast:
    """Bytes at the peak of each phase, by part, and seconds of an optimisation step by phase, of one process.

    work: of the stage that takes most memory; steps: None where unknown; completion: its tokens: low, mean, high.
    step_seconds: at the mean length of completions; step_range: short ones on a fast machine, long ones on a slow one.
    """

    work: Workload
    memory: Mapping[str, Mapping[str, float]]
    step_seconds: Mapping[str, float]
    step_range: tuple[float, float]
    steps: int | None
    completion: tuple[float, float, float]

    def peak_of(self, phase: str) -> float:
        return sum(self.memory[phase].values())

    @property
    def peak_phase(self) -> str:
        return max(self.memory, key=self.peak_of)

    @property
    def peak(self) -> float:
        return self.peak_of(self.peak_phase)

    @property
    def seconds(self) -> float:
        return sum(self.step_seconds.values())

    @property
    def total_range(self) -> tuple[float, float] | None:
        """Seconds of all steps."""
        return None if self.steps is None else (self.steps * self.step_range[0], self.steps * self.step_range[1])

    def as_json(self) -> dict[str, Any]:
        """The forecast, and `figures`: GiB by phase and seconds of a step, as `measured_figures` names them."""
        work = self.work
        own = ("memory", "step_seconds", "step_range", "steps", "completion", "peak_phase", "peak", "total_range")
        figures = {f"memory, {phase}": self.peak_of(phase) / GIB for phase in self.memory}
        figures |= {f"seconds, {phase}": value for phase, value in self.step_seconds.items()}
        return {
            "device": work.device.name,
            "device_memory": work.device.memory,
            "processes": work.processes,
            "trained_weights": work.trained_weights,
            "problems": work.problems,
            "prompt": work.prompt,
            "sampled": work.sampled_at_once * self.completion[1],
            "trained": work.trained_at_once * self.completion[1],
            **{name: getattr(self, name) for name in own},
            "figures": {**figures, "seconds, step": self.seconds},
        }


def forecast_of(work: Workload) -> Forecast:
    """The memory of the stage that takes most, and the time of all stages."""
    parts = [_of_stage(replace(work, run=stage.run)) for stage in stages_of(work.run)]
    most = max(parts, key=lambda part: part.peak)
    if len(parts) == 1:
        return most
    weights = [part.steps or 1 for part in parts]
    phases = dict.fromkeys(phase for part in parts for phase in part.step_seconds)
    seconds = {phase: fmean([part.step_seconds.get(phase, 0.0) for part in parts], weights=weights) for phase in phases}
    return replace(
        most,
        step_seconds=seconds,
        step_range=(min(part.step_range[0] for part in parts), max(part.step_range[1] for part in parts)),
        steps=None if any(part.steps is None for part in parts) else sum(part.steps or 0 for part in parts),
    )


def _of_stage(work: Workload) -> Forecast:
    training, most = work.run.training, float(work.completion)
    group, problems = work.grpo["num_generations"], work.problems or configured_problems(work.run)
    steps: int | None = work.grpo["max_steps"]
    if steps is None and problems is not None:
        steps = max(1, round(work.grpo["num_train_epochs"] * problems * group / work.sampled_at_once))
    usual = longest = training.max_prompt_length or work.prompt
    if work.prompts:  # prompts that are sampled together are padded to the longest of them
        usual = longest_met(work.prompts, work.drawn / group)
        longest = longest_met(work.prompts, (steps or math.inf) * work.sampled_at_once / group)
    completion = (most / 4, most / 2, most)
    low, middle, high = (seconds_by_phase(replace(work, prompt=usual), tokens) for tokens in completion)
    work = replace(work, prompt=longest, problems=problems)
    return Forecast(
        work,
        memory=memory_by_phase(work),
        step_seconds=middle,
        step_range=(sum(low.values()) / UNCERTAINTY, sum(high.values()) * UNCERTAINTY),
        steps=steps,
        completion=completion,
    )


def longest_met(prompts: Sequence[int], draws: float) -> int:
    """Tokens of the longest prompt that is probably among so many draws; of the longest of all for many draws."""
    return sorted(prompts)[min(len(prompts) - 1, int(len(prompts) * (1 - 1 / (draws + 1))))]


def seconds_by_phase(work: Workload, completion: float) -> dict[str, float]:
    """Seconds of one optimisation step; `completion` is the mean length of completions."""
    completions, layers = work.at_once * work.batches, work.architecture.layers
    of_pass = completions * _forward_flops(work, completion) / _flops(work)
    of_pass += work.batches * layers * _LAUNCHES_OF_A_LAYER
    found = {
        GENERATION: _generation(work, completion) * completions / (work.drawn * work.grpo["num_iterations"]),
        LOGPROBS: (work.scored_before + bool(work.grpo["beta"])) * of_pass / work.grpo["num_iterations"],
        FORWARD: of_pass,
        BACKWARD: of_pass * (3 if work.grpo["gradient_checkpointing"] else 2) * (0.75 if work.lora is not None else 1),
        # Weight, gradient and two moments, read and written.
        OPTIMIZER: 7 * work.trained_weights * work.trained_bytes / work.shards / (work.device.bandwidth * _STREAMING),
    }
    return {phase: seconds for phase, seconds in found.items() if seconds}


def _forward_flops(work: Workload, completion: float) -> float:
    """FLOPs of one completion, scored or sampled, with its prompt, which passes the layers and not the head."""
    shape, tokens = work.architecture, work.prompt + completion
    attention = 2 * tokens * tokens * shape.query_width * shape.layers  # the half that is causal, two products
    return 2 * (tokens * (shape.linear_weights + work.adapter_weights) + completion * _head_weights(work)) + attention


def _flops(work: Workload) -> float:
    """FLOP/s that a trainer's products reach."""
    peak = work.device.flops_float32 if work.halved_by is None else work.device.flops
    return peak if work.device.is_cpu else _TRAINING * peak


def _head_weights(work: Workload) -> int:
    return work.architecture.hidden * work.architecture.rows + work.copy_weights


def _generation(work: Workload, completion: float) -> float:
    """Seconds for all completions that are sampled together; the longest one decides the number of steps.

    A vLLM server is counted as one such device, for which the trainer waits.
    """
    shape, by_vllm = work.architecture, work.vllm_memory is not None
    steps = completion if by_vllm else min(1.5 * completion, work.completion)
    of_weight = work.trained_bytes if work.lora is None else work.width
    weights = (shape.linear_weights + _head_weights(work)) * of_weight
    cache = work.drawn * (work.prompt + completion / 2) * shape.layers * shape.key_width * 2 * work.width
    streamed = (weights + cache) / (work.device.bandwidth * _STREAMING)
    overhead = _STEP_OF_VLLM if by_vllm else _LAUNCHES_OF_A_LAYER * shape.layers + _LAUNCHES_OF_A_TOKEN
    computed = work.drawn * _forward_flops(work, completion) / completion / _flops(work)
    return steps * (streamed + computed + overhead if work.device.is_cpu else max(streamed, computed, overhead))


def graded_forecast(folder: Path, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each figure of a run's forecast beside the measured one; empty without a forecast or a step."""
    figures, measured = dict[str, float](), measured_figures(rows)
    try:
        figures = (read_json_if_there(folder / FORECAST) or {}).get("figures", {})
    except UserError as error:  # a damaged forecast must not cost the run its summary
        logger.warning("summary.json has no comparison with the forecast: %s", error)
    return [
        {"name": name, "forecast": round(foreseen, 3), "measured": round(measured[name], 3)}
        for name, foreseen in figures.items()
        if name in measured
    ]


def measured_figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Memory by phase (GiB) and seconds of a step by phase and in all, from the logged rows of a run.

    Seconds are means of the second half: the first step creates the optimizer's state and is slower.
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
