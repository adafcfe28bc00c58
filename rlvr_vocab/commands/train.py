"""`rlvr-vocab train`: problems, base model, expansion, GRPO in one stage or several, and the outcome, in that order."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from datasets import Dataset
from rich.console import Console

from rlvr_vocab.config.checks.accelerator import check_accelerator, check_processes, check_target_modules
from rlvr_vocab.config.sections import RunSettings, stage_error_context
from rlvr_vocab.evaluation.sampling import Checkpoint
from rlvr_vocab.files import atomic_dir, atomic_write, json_text
from rlvr_vocab.record.files import INITIAL_MODEL, MEASURED, PROBLEMS, SYSTEM_PROMPT_USED
from rlvr_vocab.record.manifest import problem_with, set_aside, write_manifest
from rlvr_vocab.record.results import HeldOutMetric, ProblemResult
from rlvr_vocab.runs.closing_screen import print_summary
from rlvr_vocab.runs.final_model import save_final_model
from rlvr_vocab.runs.folder import start_run_folder
from rlvr_vocab.runs.forecast import graded_forecast, write_forecast
from rlvr_vocab.runs.held_out import HeldOutEvaluator, held_out_figures
from rlvr_vocab.runs.lock import only_writer
from rlvr_vocab.runs.model import base_model, expansion_plan, untrained_base, untrained_plan
from rlvr_vocab.runs.monitor import RunDoctor, alert, start_wandb
from rlvr_vocab.runs.problem_account import check_same_division
from rlvr_vocab.runs.problems import RunProblems, load_run_problems, stages_of, uses_system_prompt
from rlvr_vocab.runs.processes import init_distributed, run_on_main_and_broadcast
from rlvr_vocab.runs.prompts import fitting_prompts, prompt_warnings, require_a_batch, require_chat_template
from rlvr_vocab.runs.record import run_facts
from rlvr_vocab.runs.report import report_at_the_end
from rlvr_vocab.runs.rewards import answer_warnings
from rlvr_vocab.runs.stage_runner import StagedRun
from rlvr_vocab.runs.stages import Stage
from rlvr_vocab.runs.summary import finished_summary, peaks_of_run, write_summary
from rlvr_vocab.runs.thinking import asks_to_think, thinking_warnings
from rlvr_vocab.terminal import make_console, quiet_libraries
from rlvr_vocab.text import pluralize
from rlvr_vocab.training.checkpointing.write import report_disk_full
from rlvr_vocab.training.metrics.step_clock import peak_memory
from rlvr_vocab.training.sharding import RunOnceSharded, is_sharded, on_its_device
from rlvr_vocab.training.stage import StopOnSignalOrTime
from rlvr_vocab.training.trainer import RegionGRPOTrainer
from rlvr_vocab.vocab.chat import prompt_is_thinking
from rlvr_vocab.vocab.chat_template import chat_texts
from rlvr_vocab.vocab.expand import ExpansionPlan, require_same_expansion, write_expansion
from rlvr_vocab.vocab.layout import VocabLayout

_LOOKED_AT = 8  # prompts of a stage


def run(settings: RunSettings) -> int:
    """Train as configured; a finished run of the same configuration is shown again, an interrupted one goes on."""
    check_processes(settings)
    state = init_distributed(settings)
    stop = StopOnSignalOrTime(settings.max_hours)
    lock = only_writer(settings.output_dir) if state.is_main_process else nullcontext()
    console = make_console(quiet=not state.is_main_process)
    with lock, report_disk_full(settings.output_dir):
        code = _run(settings, stop, console)
        if settings.report and state.is_main_process:
            gc.collect()  # what has trained, whose objects know each other
            with peak_memory.phase("report"):
                report_at_the_end(settings.output_dir, console)
        return code


def _run(settings: RunSettings, stop: StopOnSignalOrTime, console: Console) -> int:
    quiet_libraries()
    is_main = PartialState().is_main_process
    [summary] = broadcast_object_list([finished_summary(settings, console) if is_main else None])
    if summary is None:
        started = time.monotonic()
        training, held_out, plan = _prepare(settings, stop, console)
        measured = _train(training, held_out, plan)
        save_final_model(training.trainer, settings, training.steps, HeldOutMetric.of(held_out.graded_by), console)
        summary = _summary(settings, training, plan) | measured
        summary["seconds"] = round(time.monotonic() - started + training.seconds_of_earlier_starts, 1)
        rows = training.trainer.state.log_history
        summary["peak_memory"] = peaks_of_run(rows)
        summary["forecast"] = graded_forecast(settings.output_dir, rows)
        if is_main:
            summary["findings"] = [asdict(finding) for finding in training.doctor.finish(summary)]
            write_summary(settings.output_dir, summary)
    else:
        console.print(f"{settings.output_dir} holds this run, finished. overwrite=true trains it again.")
    print_summary(summary, settings.output_dir, console)
    return 0


def _train(training: StagedRun, held_out: HeldOutEvaluator, plan: ExpansionPlan) -> dict[str, Any]:
    """Train all stages; what was measured on the held-out problems before and after, for `summary.json`."""

    def measure(when: str, step: int | None = None) -> Sequence[ProblemResult]:
        with training.trainer.accelerator.autocast():  # that of training: flash attention computes in 16 bits alone
            return held_out.measure(when, _checkpoint(training, plan), step)

    if not training.records:
        _at_the_beginning(training.trainer, lambda: measure("before"))
    training.train()
    training.stop_after_the_last_step()
    training.drop_optimizer_state()
    before, after = held_out.measure("before", None), measure("after", training.step_of_the_weights)
    held_out.warn_where_none_could_be_right([*before, *after])
    figures = {when: held_out_figures(answers) for when, answers in (("before", before), ("after", after))}
    measured: dict[str, Any] = {
        **{f"{name}_{when}": figures[when].get(name) for name in MEASURED for when in figures},
        "held_out_problems": held_out.size,
        "grader": held_out.graded_by,
    }
    with training.trainer.accelerator.autocast():
        return {**measured, "sample": held_out.sample(_checkpoint(training, plan))}


def _summary(settings: RunSettings, training: StagedRun, plan: ExpansionPlan) -> dict[str, Any]:
    """What the training came to, for `summary.json`."""
    records = training.records
    failures: Counter[str] = Counter()
    for record in records:
        failures.update(record.reward_failures)
    summary = {
        "exp_name": settings.exp_name,
        "finished": True,
        "reasoning_vocab_size": plan.layout.size,
        "train_problems": len(training.stages[0].train),
        "steps": training.steps,
        "steps_without_signal": sum(record.steps_without_signal for record in records),
        "reward_failures": dict(failures),
        "grpo_seconds": round(sum(record.seconds for record in records), 1),
    }
    if settings.stages:
        return {**summary, "stages": [asdict(record) for record in records]}
    return {**summary, "drawn": records[0].drawn} if records[0].drawn else summary


def _prepare(
    settings: RunSettings, stop: StopOnSignalOrTime, console: Console
) -> tuple[StagedRun, HeldOutEvaluator, ExpansionPlan]:
    """Problems, the model to begin with, and what trains and measures it."""
    check_accelerator(settings)
    with PartialState().main_process_first():  # the others find it in the cache
        untrained_base(settings)
    check_target_modules(settings)
    if settings.model.needs_adapter is not None and settings.model.lora.enabled is None:
        console.print(f"{settings.model.needs_adapter}: the weights themselves cannot train, so LoRA is switched on")
    problems = load_run_problems(settings, console)
    check_same_division(settings, problems.account(), console)
    warmed_up = settings.warmup.max_steps > 0
    thinks = any(
        asks_to_think(rows[:_LOOKED_AT]["prompt"], settings.model.think_tags, stage.run.rewards, rows[0])
        for stage, rows in zip(stages_of(settings), problems.by_stage, strict=True)
    )
    plan = untrained_plan(settings.model, settings.seed, settings.dataset, thinks)
    require_chat_template(plan)
    for rows in (problems.held_out, *(problems.by_stage if warmed_up else ())):  # what else is not rendered till later
        chat_texts(plan.tokenizer, rows["prompt"][:] if rows is not None else [])
    if warmed_up:
        base = run_on_main_and_broadcast(_base_model, settings, problems.train)
        plan = expansion_plan(base, settings.model, settings.seed, settings.dataset.open_thinking, thinks)
    stages = _stages(settings, problems, plan, console)
    if prompt_is_thinking(plan.tokenizer, plan.layout):
        console.print(
            "the chat template opens the thinking, in final_model too; dataset.open_thinking=model leaves it alone"
        )
    for doubt in dict.fromkeys((*thinking_warnings(stages, plan), *_doubts(stages, plan))):
        console.print(f"warning: {doubt}", style="yellow", markup=False)
    initial_model = _write_initial_model(settings, plan, console)
    held_out = HeldOutEvaluator(stages[-1].settings, plan.layout, problems.held_out, console)
    if PartialState().is_main_process:
        write_forecast(settings, stages, initial_model, console)
        used = uses_system_prompt(settings, problems)
        account = problems.account([len(stage.train) for stage in stages])
        account |= {"grader": held_out.graded_by, SYSTEM_PROMPT_USED: used}
        atomic_write(settings.output_dir / PROBLEMS, json_text(account))
    start_wandb(settings)
    facts = run_facts(settings.resolved, settings.output_dir)
    doctor = RunDoctor(facts, settings.output_dir, partial(alert, settings))
    training = StagedRun(stages, initial_model, held_out, stop, doctor, console)
    return training, held_out, plan


@peak_memory.phase("warmup")
def _base_model(settings: RunSettings, train: Dataset) -> str:
    """With a screen of its own: it may be another process than the one that goes on."""
    return base_model(settings, train, make_console())


def _stages(settings: RunSettings, problems: RunProblems, plan: ExpansionPlan, console: Console) -> list[Stage]:
    """Each stage with the problems whose prompts fit it."""
    stages = []
    written = stages_of(settings)
    for number, (stage, rows) in enumerate(zip(written, problems.by_stage, strict=True), start=1):
        with stage_error_context(stage.name):
            train, lengths = fitting_prompts(rows, plan, stage.run.training, console)
            require_a_batch(train, stage.run.training)
        stages.append(Stage(number, len(written), stage.name, stage.run, stage.until, train, tuple(lengths)))
    return stages


def _doubts(stages: Sequence[Stage], plan: ExpansionPlan) -> Iterator[str]:
    for stage in stages:
        yield from prompt_warnings(stage.train["prompt"][:], plan)
        yield from answer_warnings(stage.settings, stage.train[:_LOOKED_AT]["prompt"])


def _at_the_beginning(trainer: RegionGRPOTrainer, measure: Callable[[], object]) -> None:
    """Now, or, where the model is still to be sharded, as soon as it is."""
    if is_sharded(trainer.accelerator.state):
        trainer.add_callback(RunOnceSharded(measure))
    else:
        measure()


def _checkpoint(training: StagedRun, plan: ExpansionPlan) -> Checkpoint:
    return Checkpoint(on_its_device(training.trainer), training.trainer.processing_class, plan.layout)


@peak_memory.phase("expansion")
def _write_initial_model(settings: RunSettings, plan: ExpansionPlan, console: Console) -> Path:
    folder = settings.output_dir / INITIAL_MODEL
    state = PartialState()
    if state.is_main_process:
        start_run_folder(settings)
        problem = problem_with(folder) if folder.exists() else None
        if problem is not None:  # a run that goes on would have another reference than the one that it began with
            aside = set_aside(folder, "broken")
            console.print(f"warning: {folder} is not valid: {problem}; set aside as {aside.name}", markup=False)
        if folder.exists():
            if plan.base == settings.model.name:  # a warm-up that is done again may round otherwise
                require_same_expansion(plan, folder)
        else:
            with atomic_dir(folder) as whole:
                write_expansion(plan, whole)
                write_manifest(whole)
    state.wait_for_everyone()
    layout = VocabLayout.load(folder)
    console.print(
        f"model: {layout.standard_size} standard tokens and {pluralize(layout.size, 'reasoning token')}, in {folder}",
    )
    return folder
