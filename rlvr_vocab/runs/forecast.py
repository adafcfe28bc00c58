"""What a run is expected to take, written down before it trains, and held against what it took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from rich.console import Console

from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_write
from rlvr_vocab.plan.architecture import architecture_of
from rlvr_vocab.plan.devices import CPU, GIB, Device, card_called, device_named, device_with
from rlvr_vocab.plan.forecast import Circumstances, forecast_of
from rlvr_vocab.plan.outcome import FORECAST, grades, measured_in, read_forecast
from rlvr_vocab.plan.problems import ProblemsAhead
from rlvr_vocab.plan.workload import Sharding
from rlvr_vocab.runs.stages import Stage
from rlvr_vocab.vocab.layout import VocabLayout


def write_forecast(settings: RunSettings, stages: Sequence[Stage], initial_model: Path, console: Console) -> None:
    """Write `forecast.json`, with the lengths of prompts and the rows of the model as they turned out to be.

    A model of which nothing can be foreseen trains without one, with a word.
    """
    layout = VocabLayout.load(initial_model)
    try:
        shape = replace(architecture_of(str(initial_model)), rows=layout.standard_size)
    except UserError as error:
        console.print(f"no forecast of this run: {error}", markup=False)
        return
    where = Circumstances(
        _device(),
        processes=PartialState().num_processes,
        sharding=_sharding(),
        ahead=ProblemsAhead(len(stages[0].train), tuple(length for stage in stages for length in stage.prompt_lengths)),
        shape=shape,
        copies=layout.size,
    )
    atomic_write(settings.output_dir / FORECAST, forecast_of(settings, where).to_json())


def graded_forecast(folder: Path, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each figure of a run's forecast beside what was measured, for `summary.json`; none where no step was logged."""
    forecast = read_forecast(folder)
    if forecast is None or not any("step_time" in row for row in rows):
        return []
    return [
        {"name": name, "forecast": round(foreseen, 3), "measured": round(measured, 3)}
        for name, foreseen, measured in grades(forecast, measured_in(rows))
    ]


def _sharding() -> Sharding:
    match PartialState().distributed_type:
        case DistributedType.FSDP:
            return "fsdp2"
        case DistributedType.DEEPSPEED:
            return "deepspeed_zero3"
    return "none"


def _device() -> Device:
    """The card of this process, with its own memory; for one that is not in the table the speed of the nearest."""
    if PartialState().device.type != "cuda":
        return device_named(CPU, torch.get_num_threads())
    properties = torch.cuda.get_device_properties(PartialState().device)
    memory = float(properties.total_memory)
    known = card_called(properties.name)
    return device_with(memory / GIB) if known is None else replace(known, memory=memory)
