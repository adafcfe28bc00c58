"""`rlvr-vocab train`: problems → model → expansion → rewards → trainer → measure → final model → report."""

from __future__ import annotations

import gc
import time
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

from accelerate import PartialState
from rich.console import Console

from rlvr_vocab.config.checks.accelerator import check_accelerator, check_layers, check_processes
from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.runs.final_model import push_final_model, save_final_model
from rlvr_vocab.runs.folder import only_writer
from rlvr_vocab.runs.held_out import HeldOutEvaluator
from rlvr_vocab.runs.model import plan_model, start_run, warmup_steps
from rlvr_vocab.runs.problems import load_run_problems, print_prompt_warnings, write_problems_record
from rlvr_vocab.runs.report import report_at_the_end
from rlvr_vocab.runs.rewards import write_thought_reading
from rlvr_vocab.runs.stages import StagedRun, make_stages
from rlvr_vocab.runs.summary import finished_summary, print_summary, write_forecast, write_summary
from rlvr_vocab.terminal import make_console, quiet_libraries
from rlvr_vocab.training.checkpoint_folders import full_disk_as_out_of_room
from rlvr_vocab.training.stage import StopOnSignalOrTime


def run(settings: RunSettings) -> int:
    """Train as configured; with the same configuration, show a finished run again or resume an interrupted one."""
    check_processes(settings)
    grpo = settings.training.grpo
    timeout = timedelta(seconds=grpo.get("ddp_timeout") or 1800)  # as in Transformers
    # The first PartialState fixes backend and timeout.
    state = PartialState(cpu=bool(grpo.get("use_cpu")), backend=grpo.get("ddp_backend"), timeout=timeout)
    stop = StopOnSignalOrTime(settings.max_hours)
    console = make_console(quiet=not state.is_main_process)
    quiet_libraries()
    lock = only_writer(settings.output_dir) if state.is_main_process else nullcontext()
    with lock, full_disk_as_out_of_room(settings.output_dir):
        summary = finished_summary(settings)
        if summary is None:
            summary = train(settings, stop, console)
        else:
            console.print(f"{settings.output_dir} holds this run, finished. overwrite=true trains it again.")
        print_summary(summary, settings.output_dir, console)
        if settings.report and state.is_main_process:
            gc.collect()  # the trainer has reference cycles
            report_at_the_end(settings.output_dir, console)
    return 0


def train(settings: RunSettings, stop: StopOnSignalOrTime, console: Console) -> dict[str, Any]:
    """Train all stages of a run, from its last checkpoint if there is one; returns its summary."""
    started = time.monotonic()
    is_main = PartialState().is_main_process
    check_accelerator(settings)
    check_layers(settings)

    problems = load_run_problems(settings, console)
    plan = plan_model(settings, problems, console)
    stages = make_stages(settings, problems, plan, console)
    print_prompt_warnings([(stage.settings, stage.train) for stage in stages], plan, console)

    run = start_run(settings, plan, console)
    held_out = HeldOutEvaluator.of_run(run, problems.held_out)
    if is_main:
        write_forecast(run, [stage.prompt_lengths for stage in stages])
        write_problems_record(run, problems, [len(stage.train) for stage in stages], held_out.graded_by)

    training = StagedRun(run, stages, held_out, stop)
    training.train()
    measured = held_out.outcome(training.trainer, training.step_of_the_weights)
    if is_main:
        write_thought_reading(stages[-1].settings, stages[-1].train, console)
    save_final_model(run, training.trainer, training.steps, held_out.metric)

    seconds = round(time.monotonic() - started + training.seconds_of_earlier_starts, 1)
    summary = {**training.summary(), **measured, "seconds": seconds, "warmup_steps": warmup_steps(plan)}
    summary = write_summary(run.folder, summary, training.trainer.state.log_history)
    if is_main:
        push_final_model(run)
    return summary
