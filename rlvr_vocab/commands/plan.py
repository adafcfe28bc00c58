"""`rlvr-vocab plan`: estimates memory and time of a run, and finds settings that fit a card."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import replace

from rich.console import Console

from rlvr_vocab.config.command_settings import PlanSettings
from rlvr_vocab.errors import UserError
from rlvr_vocab.plan.architecture import FAMILIES
from rlvr_vocab.plan.devices import GIB, Device, device_named, device_with
from rlvr_vocab.plan.fit import Fit, fit_into_device
from rlvr_vocab.plan.forecast import Forecast, forecast_of
from rlvr_vocab.plan.workload import workload_of
from rlvr_vocab.terminal import make_console, print_section, print_table
from rlvr_vocab.text import pluralize

_NO_STEPS = "the number of steps is unknown: give train_problems=N, or training.max_steps=N"


def run(settings: PlanSettings) -> int:
    """Print the forecast; returns 1 if the run does not fit the planned card, else 0."""
    work = workload_of(
        settings,
        _device(settings),
        processes=settings.gpus,
        sharding=settings.sharding,
        problems=settings.train_problems,
        prompts=(settings.prompt_tokens,) if settings.prompt_tokens else (),
    )
    fit = None if settings.fit is None else fit_into_device(work)
    forecast = forecast_of(work) if fit is None else fit.forecast
    match settings.format:
        case "json":
            changed = {} if fit is None else {"changed": fit.words}
            print(json.dumps({**forecast.as_json(), **changed}, indent=2))
        case "slurm_time":
            print(_slurm_time(forecast))
        case "text":
            _show(settings, forecast, fit, make_console())
    if forecast.peak <= work.device.memory:
        return 0
    if settings.format != "text":
        print(_room(forecast), file=sys.stderr)
    return 1


def _device(settings: PlanSettings) -> Device:
    """The requested card, with the memory of `fit` if that is given."""
    gib = settings.fit
    if gib is None:
        return device_named(settings.gpu)
    return device_with(gib) if settings.gpu is None else replace(device_named(settings.gpu), memory=gib * GIB)


def _show(settings: PlanSettings, forecast: Forecast, fit: Fit | None, console: Console) -> None:
    if fit is not None:
        lines = [f"{' '.join(each.words)}  # {each.effect or 'the same training, more slowly'}" for each in fit.changes]
        print_section(console, f"to fit into {settings.fit:g} GiB", lines or ["no change is needed"])
    print_section(console, settings.exp_name, _model_lines(forecast))
    device = forecast.work.device
    lines = [_room(forecast)]
    if forecast.peak > device.memory:
        lines.append(f"rlvr-vocab plan … fit={device.memory / GIB:.0f}GiB finds settings that fit")
    print_section(console, f"memory of each process ({device.name}), GiB", lines)
    parts = list(dict.fromkeys(part for phase in forecast.memory.values() for part in phase))
    rows = []
    for phase, memory in forecast.memory.items():
        cells = [f"{memory[part] / GIB:.2f}" if part in memory else "" for part in parts]
        rows.append([phase, *cells, f"{forecast.peak_of(phase) / GIB:.2f}"])
    print_table(console, ["phase", *parts, "all"], rows, marked=forecast.peak_phase)
    print_section(console, "time", _time_lines(forecast))


def _model_lines(forecast: Forecast) -> Iterator[str]:
    work, frozen = forecast.work, forecast.work.frozen_weights
    shape = work.architecture
    yield f"{work.run.model.name}: {shape.weights:,} weights, {pluralize(work.copies, 'reasoning token')}"
    yield f"{work.trained_weights:,} weights train{f', {frozen:,} are frozen' if frozen else ''}"
    if shape.model_type not in FAMILIES:
        yield f"plan has no formula for model_type {shape.model_type}: counted as a Llama model, so it may be off"
    short, middle, long = forecast.completion
    lengths = f"{middle:,.0f}" if short == long else f"{middle:,.0f} ({short:,.0f} to {long:,.0f})"
    sampled, trained = (middle * completions for completions in (work.sampled_at_once, work.trained_at_once))
    yield (
        f"{work.sampled_at_once:,.0f} completions a step, prompts of up to {work.prompt:,} tokens, "
        f"completions of {lengths}: {sampled:,.0f} tokens sampled, {trained:,.0f} trained"
    )


def _room(forecast: Forecast) -> str:
    memory = forecast.work.device.memory
    fits = "fits into" if forecast.peak <= memory else "DOES NOT FIT into"
    return f"{forecast.peak / GIB:.1f} at most, in {forecast.peak_phase}: {fits} {memory / GIB:.1f}"


def _time_lines(forecast: Forecast) -> Iterator[str]:
    low, high = forecast.step_range
    phases = ", ".join(f"{phase} {_duration(seconds)}" for phase, seconds in forecast.step_seconds.items())
    yield f"{_duration(forecast.seconds)} a step, {_duration(low)} to {_duration(high)} (from data sheets)"
    yield f"of which {phases}"
    total, steps = forecast.total_range, forecast.steps
    if total is None or steps is None:
        yield _NO_STEPS
        return
    span = f"{_duration(steps * forecast.seconds)}, {_duration(total[0])} to {_duration(total[1])}"
    yield f"{pluralize(steps, 'step')}: {span}"


def _slurm_time(forecast: Forecast) -> str:
    """The upper estimate of the run's time as days-hours:minutes:seconds, in whole quarters of an hour."""
    if forecast.total_range is None:
        raise UserError(f"format=slurm_time: {_NO_STEPS}")
    quarters = math.ceil(forecast.total_range[1] / 900)
    days, rest = divmod(quarters * 15, 24 * 60)
    return f"{days}-{rest // 60:02}:{rest % 60:02}:00"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
