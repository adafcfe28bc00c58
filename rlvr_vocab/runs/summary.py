"""The forecast of a run, written before training, and its summary, written and printed at the end."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from rlvr_vocab.analysis.doctor.diagnose import diagnose
from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_write, json_text, read_json_if_there
from rlvr_vocab.plan.architecture import architecture_of
from rlvr_vocab.plan.devices import card_of_driver, this_processor
from rlvr_vocab.plan.forecast import FORECAST, forecast_of, graded_forecast
from rlvr_vocab.plan.workload import Sharding, Workload
from rlvr_vocab.record.files import FINAL_ADAPTER, FINAL_MODEL, SUMMARY, TRACKERS
from rlvr_vocab.record.manifest import MANIFEST, problem_with
from rlvr_vocab.record.metrics import MEMORY_OF_PHASE, is_number
from rlvr_vocab.record.results import HeldOutMetric
from rlvr_vocab.runs.folder import Run, changes_of, run_record
from rlvr_vocab.terminal import shows_colours
from rlvr_vocab.text import pluralize, short_text, visible_text
from rlvr_vocab.training.checkpoint_folders import newest_checkpoint
from rlvr_vocab.training.metrics.step_clock import peak_memory
from rlvr_vocab.vocab.marking import CLOSE_MARK, OPEN_MARK

Rows = Sequence[Mapping[str, Any]]
_SHARDING: dict[str, Sharding] = {"FSDP": "fsdp2", "DEEPSPEED": "deepspeed_zero3"}


def write_forecast(run: Run, prompt_lengths: Sequence[Sequence[int]], problems: int | None = None) -> None:
    """Write `forecast.json` unless the model's shape is unknown; without `problems` each of stage 1 has its length."""
    try:
        shape = replace(architecture_of(str(run.initial_model)), rows=run.layout.standard_size)
    except UserError as error:
        run.console.print(f"no forecast of this run: {error}", markup=False)
        return
    state, device = PartialState(), this_processor(torch.get_num_threads())
    if state.device.type == "cuda":
        properties = torch.cuda.get_device_properties(state.device)
        device = card_of_driver(properties.name, float(properties.total_memory))
    work = Workload(
        run.settings,
        device,
        shape,
        copies=run.layout.size,
        processes=state.num_processes,
        sharding=_SHARDING.get(state.distributed_type, "none"),
        problems=problems or len(prompt_lengths[0]),
        prompts=tuple(chain.from_iterable(prompt_lengths)),
    )
    atomic_write(run.folder / FORECAST, json_text(forecast_of(work).as_json()))


def finished_summary(settings: RunSettings) -> dict[str, Any] | None:
    """The summary of a finished run, in every process; None if there is training to do."""
    folder, summary = settings.output_dir, None
    trains = settings.overwrite or settings.resume != "auto" or not (folder / SUMMARY).is_file()
    if PartialState().is_main_process and not trains and not changes_of(settings):
        final = folder / FINAL_MODEL
        problem = problem_with(final) if (final / MANIFEST).is_file() else None
        if problem is not None:
            raise UserError(
                f"{folder}: this run is finished, and {FINAL_MODEL}/{problem}. Restore the file, or delete it and "
                f"{SUMMARY} to create both again from the last checkpoint, or train again with overwrite=true"
            )
        summary = read_json_if_there(folder / SUMMARY)
    [summary] = broadcast_object_list([summary if (summary or {}).get("finished") else None])
    return summary


def write_summary(folder: Path, summary: dict[str, Any], rows: Rows) -> dict[str, Any]:
    """Write `summary.json`, which marks the run as finished; `rows` are the logged ones of the last stage."""
    summary["peak_memory"] = _peaks_of_run(rows)
    summary["forecast"] = graded_forecast(folder, rows)
    if PartialState().is_main_process:
        record = replace(run_record(folder), summary=summary)
        summary["findings"] = [asdict(finding) for finding in diagnose(record)]
        atomic_write(folder / SUMMARY, json_text(summary))
    return summary


def _peaks_of_run(rows: Rows) -> dict[str, float]:
    """The peak memory of each phase in GiB: of steps by the logged rows, of others in any process of this start."""
    peak_memory.enter(None)
    peaks = [(phase, peak) for of_process in gather_object([peak_memory.highest]) for phase, peak in of_process.items()]
    names = MEMORY_OF_PHASE.values()
    peaks += [(name.removeprefix("memory/"), row[name]) for row in rows for name in names if is_number(row.get(name))]
    highest: dict[str, float] = {}
    for phase, peak in peaks:
        highest[phase] = max(round(peak, 3), highest.get(phase, 0.0))
    return highest


def print_summary(summary: dict[str, Any], folder: Path, console: Console) -> None:
    """Print the outcome, warnings, a sampled answer, and the next commands to type."""
    console.print()
    console.print(outcome_line(summary))
    warnings = [
        f"reward {name} failed on {pluralize(failures, 'completion')}, which got no score from it: "
        f"rewards/{name}/failures in metrics.jsonl"
        for name, failures in summary.get("reward_failures", {}).items()
    ]
    warnings += [f"finding: {finding['title']} (step {finding['step']})" for finding in summary.get("findings", ())]
    for line in warnings:
        console.print(line, style="yellow", markup=False)
    sample = summary["sample"]
    if sample is not None:
        gold = "" if sample["solution"] is None else f" (gold: {sample['solution']})"
        console.print(f"\na sampled answer to {sample['problem']!r}{gold}, reasoning tokens marked:", markup=False)
        console.print(Text("  ") + marked_text(sample["stretches"], colour=shows_colours(console)))
    models = "".join(f", {name}/" for name in (FINAL_ADAPTER, FINAL_MODEL) if (folder / name).is_dir())
    console.print(f"\nthe run is in {folder}: metrics.jsonl, completions/, summary.json{models}", markup=False)
    console.print("next:", *next_commands(summary, folder), sep="\n  ", markup=False)


def next_commands(summary: Mapping[str, Any], folder: Path) -> list[str]:
    """At most three commands that fit the outcome of a run, each with its use; the most useful one first."""
    metric, problem = HeldOutMetric.of(summary.get("grader")), (summary.get("sample") or {"problem": "…"})["problem"]
    found = [(["doctor", f"run={folder}"], "why, and which key to change")] if summary.get("findings") else []
    if not _has_gained(summary, metric):
        why = "no clear gain" if summary["held_out_problems"] else "no gain was measured"
        found.append((["samples", f"run={folder}", "order=lowest"], f"{why}: read what it writes"))
    else:
        final = folder / FINAL_MODEL
        is_whole = (final / MANIFEST).is_file()  # a script has none yet, or its own
        trained = final if is_whole else newest_checkpoint(folder, hashed=False)
        if trained is not None:
            ask = ["generate", f"checkpoint={trained}", f"prompt={short_text(problem)}"]
            found.append((ask, "ask the trained model"))
        if summary.get("reasoning_vocab_size") and is_whole:
            found.append((["probe", f"run={folder}"], "whether the reasoning tokens carry meaning"))
        if (folder / FINAL_ADAPTER).is_dir():
            merge = ["merge", f"checkpoint={folder}/{FINAL_ADAPTER}", f"out={folder}/merged", "dtype=auto"]
            found.append((merge, "a model in the type of its base, to serve"))
    if not found or not (folder / TRACKERS).is_file():
        found.append((["report", f"run={folder}", f"figures={folder}/figures"], "its curves as files"))
    return [f"{shlex.join(['rlvr-vocab', *words])}  # {use}" for words, use in found[:3]]


def _has_gained(summary: Mapping[str, Any], metric: HeldOutMetric) -> bool:
    """Whether the held-out metric has risen by two standard errors of independent measurements."""
    before, after = (summary.get(f"{metric.name}_{when}") for when in ("before", "after"))
    if before is None or after is None:
        return False
    variance = sum((summary.get(f"reward_std_{when}") or 0.0) ** 2 for when in ("before", "after"))
    return bool(after - before > 2 * math.sqrt(variance / summary["held_out_problems"]))


def outcome_line(summary: dict[str, Any]) -> str:
    """The held-out figures before and after GRPO, as one line of Rich markup."""
    steps, problems = pluralize(summary["steps"], "step"), pluralize(summary["held_out_problems"], "problem")
    metric = HeldOutMetric.of(summary.get("grader"))
    before, after = (summary.get(f"{metric.name}_{when}") for when in ("before", "after"))
    if before is None or after is None:
        why = "no held-out answer has a score" if summary["held_out_problems"] else "no problem is held out"
        return f"{steps} in {summary['seconds']:.0f} s; {why}."
    return (
        f"held-out {metric.name} on {problems}{escape(metric.by)}: [bold]{metric.value(before)}[/] before GRPO, "
        f"[bold]{metric.value(after)}[/] after ({metric.difference(after - before)}, {steps}, "
        f"{summary['grpo_seconds']:.0f} s)"
    )


def marked_text(spans: Iterable[Sequence[Any]], *, colour: bool) -> Text:
    """Surface text with reasoning tokens marked and control characters escaped."""
    text = Text()
    for written, copy_index, *_ in spans:
        surface, is_copy = visible_text(written), bool(copy_index)
        marked = f"{OPEN_MARK}{surface}{CLOSE_MARK}" if is_copy and not colour else surface
        text.append(marked, "bold magenta" if is_copy and colour else None)
    return text
