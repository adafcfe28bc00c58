"""`rlvr-vocab train`: problems, base model, expansion, GRPO in one stage or several, and the outcome, in that order."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

from accelerate import PartialState
from rich.console import Console

from rlvr_vocab.evaluation.sampling import Checkpoint
from rlvr_vocab.exp.accelerator_checks import check_accelerator
from rlvr_vocab.exp.adapter_checks import check_target_modules
from rlvr_vocab.exp.base_model import base_model
from rlvr_vocab.exp.closing import closing_words
from rlvr_vocab.exp.final_model import save_final_model
from rlvr_vocab.exp.held_out import HeldOut
from rlvr_vocab.exp.model_wiring import expansion, source_kwargs
from rlvr_vocab.exp.prompt_lengths import fitting_prompts, require_a_batch
from rlvr_vocab.exp.quiet import quiet_libraries
from rlvr_vocab.exp.run_folder import SUMMARY, read_summary, start_run_folder, write_json
from rlvr_vocab.exp.run_problems import RunProblems, load_run_problems, stages_of
from rlvr_vocab.exp.screen import make_console
from rlvr_vocab.exp.stage_run import Stage, StagedRun
from rlvr_vocab.exp.stage_words import naming_the_stage
from rlvr_vocab.exp.typed_sections import RunSettings
from rlvr_vocab.exp.wandb_run import start_wandb
from rlvr_vocab.vocab.expand import ExpansionPlan, plan_expansion, write_expansion
from rlvr_vocab.vocab.layout import VocabLayout


def run(settings: RunSettings) -> int:
    """Train as configured; a finished run of the same configuration is shown again, an interrupted one goes on."""
    state = PartialState(cpu=settings.training.grpo.get("use_cpu") or False)
    console = make_console(quiet=not state.is_main_process)
    quiet_libraries()
    summary = None if settings.overwrite else read_summary(settings.output_dir)
    if summary is not None and summary["finished"]:
        console.print(f"{settings.output_dir} holds this run, finished. overwrite=true trains it again.")
        closing_words(summary, settings.output_dir, console)
        return 0
    started = time.monotonic()
    check_accelerator(settings)
    check_target_modules(settings)
    if settings.model.needs_adapter is not None and settings.model.lora.enabled is None:
        console.print(f"{settings.model.needs_adapter}: the weights themselves cannot train, so LoRA is switched on")
    problems = load_run_problems(settings, console)
    base = base_model(settings, problems.train, console)
    plan = plan_expansion(
        base,
        expansion(settings.model, settings.seed, settings.dataset.open_thinking),
        source_kwargs(settings.model),
    )
    stages = _stages(settings, problems, plan, console)
    initial_model = _write_initial_model(settings, plan, console)
    start_wandb(settings)
    training = StagedRun(stages, initial_model, problems.held_out, console)
    held_out = HeldOut(stages[-1].settings, problems.held_out, console)
    with training.trainer.accelerator.autocast():  # as in training: flash attention computes in 16 bits alone
        accuracy_before = held_out.accuracy("before", None if training.records else _checkpoint(training, plan))
    training.train()
    checkpoint = _checkpoint(training, plan)
    with training.trainer.accelerator.autocast():
        accuracy_after, sample = held_out.accuracy("after", checkpoint), held_out.sample(checkpoint)
    save_final_model(training.trainer, settings, training.steps, console)
    summary = {
        "exp_name": settings.exp_name,
        "finished": True,
        "reasoning_vocab_size": plan.layout.size,
        "accuracy_before": accuracy_before,
        "accuracy_after": accuracy_after,
        "held_out_problems": held_out.size,
        "train_problems": len(stages[0].train),
        "steps": training.steps,
        "steps_without_signal": sum(record.steps_without_signal for record in training.records),
        "reward_failures": _reward_failures(training),
        "grpo_seconds": round(sum(record.seconds for record in training.records), 1),
        "seconds": round(time.monotonic() - started, 1),
        "sample": sample,
    }
    if settings.stages:
        summary["stages"] = [asdict(record) for record in training.records]
    if training.trainer.accelerator.is_main_process:
        write_json(settings.output_dir / SUMMARY, summary)
    closing_words(summary, settings.output_dir, console)
    return 0


def _reward_failures(training: StagedRun) -> dict[str, int]:
    """On how many rows each reward function failed, all stages together."""
    failures: Counter[str] = Counter()
    for record in training.records:
        failures.update(record.reward_failures)
    return dict(failures)


def _stages(settings: RunSettings, problems: RunProblems, plan: ExpansionPlan, console: Console) -> list[Stage]:
    """Each stage with the problems whose prompts fit it."""
    stages = []
    written = stages_of(settings)
    for number, (stage, rows) in enumerate(zip(written, problems.by_stage, strict=True), start=1):
        with naming_the_stage(stage.name):
            train = fitting_prompts(rows, _as_loaded(plan, settings), stage.run.training, console)
            require_a_batch(train, stage.run.training)
        stages.append(Stage(number, len(written), stage.name, stage.run, stage.until, train))
    return stages


def _as_loaded(plan: ExpansionPlan, settings: RunSettings) -> ExpansionPlan:
    """Unsloth makes room for so many tokens and no more, whatever the model could take."""
    if settings.model.backend != "unsloth":
        return plan
    room = settings.model.unsloth.max_seq_length
    return replace(plan, context_length=min(plan.context_length or room, room))


def _checkpoint(training: StagedRun, plan: ExpansionPlan) -> Checkpoint:
    return Checkpoint(training.trainer.model, training.trainer.processing_class, plan.layout)


def _write_initial_model(settings: RunSettings, plan: ExpansionPlan, console: Console) -> Path:
    folder = settings.output_dir / "initial_model"
    state = PartialState()
    if state.is_main_process:
        start_run_folder(settings)
        if not folder.exists():
            write_expansion(plan, folder)
    state.wait_for_everyone()
    layout = VocabLayout.load(folder)
    console.print(
        f"model: {layout.standard_size} standard tokens and {layout.size} reasoning tokens, in {folder}",
    )
    return folder
