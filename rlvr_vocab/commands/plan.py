"""`rlvr-vocab plan`: estimates memory and time of a run, and finds settings that fit a card."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from rlvr_vocab.config.command_settings import PlanSettings
from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_write
from rlvr_vocab.plan.devices import GIB, Device, device_named, device_with
from rlvr_vocab.plan.fit import Fit, fit_into
from rlvr_vocab.plan.forecast import Circumstances, Forecast, forecast_of
from rlvr_vocab.plan.problems import ProblemsAhead, problems_ahead
from rlvr_vocab.plan.workload import architecture_of_run, copies_of
from rlvr_vocab.terminal import make_console, print_section
from rlvr_vocab.text import pluralize

_NO_STEPS = "the number of steps is unknown: give train_problems=N, or training.max_steps=N"


def run(settings: PlanSettings) -> int:
    """Print the forecast; returns 1 if the run does not fit the planned card, else 0."""
    device, console = _device(settings), make_console()
    where = Circumstances(
        device,
        processes=settings.gpus,
        sharding=settings.sharding,
        ahead=_ahead(settings),
        completion=settings.completion_tokens,
    )
    fit = None if settings.fit is None else fit_into(settings, where, settings.fit)
    forecast = forecast_of(settings, where) if fit is None else fit.forecast
    if settings.out is not None:
        atomic_write(settings.out, forecast.to_json())
    match settings.format:
        case "json":
            changed = {} if fit is None else {"changed": fit.words}
            print(json.dumps({**json.loads(forecast.to_json()), **changed}, indent=2))
        case "slurm_time":
            print(_slurm_time(forecast))
        case "text":
            _show(settings, forecast, fit, console)
    if forecast.peak <= device.memory:
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


def _ahead(settings: PlanSettings) -> ProblemsAhead:
    """The problems as counted in the set, or as given by the settings."""
    given = () if settings.prompt_tokens is None else (settings.prompt_tokens,)
    found = ProblemsAhead() if given and settings.train_problems else problems_ahead(settings)
    return ProblemsAhead(settings.train_problems or found.count, given or found.prompts)


def _show(settings: PlanSettings, forecast: Forecast, fit: Fit | None, console: Console) -> None:
    planned: RunSettings = settings if fit is None else fit.run
    if fit is not None:
        effects = ((each.words, each.effect or "the same training, more slowly") for each in fit.changes)
        lines = [f"{' '.join(words)}  # {effect}" for words, effect in effects]
        print_section(console, f"to fit into {settings.fit:g} GiB", lines or ["no change is needed"])
    print_section(console, planned.exp_name, _of_model(planned, forecast))
    lines = [_room(forecast)]
    if forecast.peak > forecast.device_memory:
        lines.append(f"rlvr-vocab plan … fit={forecast.device_memory / GIB:.0f}GiB finds settings that fit")
    print_section(console, f"memory of each process ({forecast.device}), GiB", lines)
    console.print(_memory_table(forecast))
    print_section(console, "time", _of_time(forecast))


def _of_model(run: RunSettings, forecast: Forecast) -> Iterator[str]:
    shape = architecture_of_run(run)
    copies, frozen = copies_of(run, shape), forecast.frozen_weights
    yield f"{run.model.name}: {_count(shape.weights)} weights, {pluralize(copies, 'reasoning token')}"
    yield f"{_count(forecast.trained_weights)} weights train{f', {_count(frozen)} are frozen' if frozen else ''}"
    if not shape.is_known:
        yield f"plan has no formula for model_type {shape.model_type}: counted as a Llama model, so it may be off"
    short, middle, long = forecast.completion
    lengths = f"{middle:,.0f}" if short == long else f"{middle:,.0f} ({short:,.0f} to {long:,.0f})"
    yield (
        f"{forecast.completions:,.0f} completions a step, prompts of up to {forecast.prompt:,} tokens, "
        f"completions of {lengths}: {forecast.sampled:,.0f} tokens sampled, {forecast.trained:,.0f} trained"
    )


def _room(forecast: Forecast) -> str:
    fits = "fits into" if forecast.peak <= forecast.device_memory else "DOES NOT FIT into"
    return f"{forecast.peak / GIB:.1f} at most, in {forecast.peak_phase}: {fits} {forecast.device_memory / GIB:.1f}"


def _memory_table(forecast: Forecast) -> Table:
    parts = list(dict.fromkeys(part for phase in forecast.memory.values() for part in phase))
    table = Table(box=None, padding=(0, 1), pad_edge=True)
    table.add_column("phase")
    for part in (*parts, "all"):
        table.add_column(part, justify="right")
    for phase, of_phase in forecast.memory.items():
        cells = [f"{of_phase[part] / GIB:.2f}" if part in of_phase else "" for part in parts]
        mark = "bold" if phase == forecast.peak_phase else ""
        table.add_row(phase, *cells, f"{forecast.peak_of(phase) / GIB:.2f}", style=mark)
    return table


def _of_time(forecast: Forecast) -> Iterator[str]:
    low, high = forecast.step_range
    phases = ", ".join(f"{phase} {_duration(seconds)}" for phase, seconds in forecast.step_seconds.items())
    yield f"{_duration(forecast.seconds)} a step, {_duration(low)} to {_duration(high)} (from data sheets)"
    yield f"of which {phases}"
    total = forecast.total_range
    if total is None:
        yield _NO_STEPS
        return
    middle = (forecast.steps or 0) * forecast.seconds
    epochs = "" if forecast.epochs is None else f", {forecast.epochs:.3g} passes over {forecast.problems:,} problems"
    span = f"{_duration(middle)}, {_duration(total[0])} to {_duration(total[1])}"
    yield f"{pluralize(forecast.steps or 0, 'step')}{epochs}: {span}"


def _slurm_time(forecast: Forecast) -> str:
    """The upper estimate of the run's time as days-hours:minutes:seconds, in whole quarters of an hour."""
    if forecast.total_range is None:
        raise UserError(f"format=slurm_time: {_NO_STEPS}")
    quarters = math.ceil(forecast.total_range[1] / 900)
    days, rest = divmod(quarters * 15, 24 * 60)
    return f"{days}-{rest // 60:02}:{rest % 60:02}:00"


def _count(number: float) -> str:
    for size, unit in ((1e9, " billion"), (1e6, " million")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:,.0f}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
