"""`rlvr-vocab train`: problems, base model, expansion, GRPO, and the outcome, in that order."""

from __future__ import annotations

import time
from pathlib import Path

from accelerate import PartialState
from datasets import Dataset
from rich.console import Console
from transformers.trainer import TRAINING_ARGS_NAME

from rlvr_vocab.data import ProblemSets, load_problem_sets
from rlvr_vocab.evaluation.sampling import Checkpoint
from rlvr_vocab.exp.base_model import base_model
from rlvr_vocab.exp.closing import closing_words
from rlvr_vocab.exp.data_wiring import problem_source, problem_split, prompt_style
from rlvr_vocab.exp.held_out import HeldOut
from rlvr_vocab.exp.model_wiring import expansion, loading_kwargs, reward_specs, source_kwargs
from rlvr_vocab.exp.prompt_lengths import fitting_prompts, require_a_batch
from rlvr_vocab.exp.quiet import quiet_libraries
from rlvr_vocab.exp.run_folder import SUMMARY, read_summary, start_run_folder, write_json
from rlvr_vocab.exp.screen import make_console
from rlvr_vocab.exp.typed_sections import RunSettings
from rlvr_vocab.exp.wandb_run import start_wandb
from rlvr_vocab.rewards.build import build_rewards
from rlvr_vocab.training.callbacks import LiveFigures, MetricsFile
from rlvr_vocab.training.checkpoints import newest_checkpoint
from rlvr_vocab.training.config import grpo_config
from rlvr_vocab.training.progress import stage
from rlvr_vocab.training.trainer import RegionGRPOTrainer
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
    problems = _load_problems(settings, console)
    require_a_batch(problems.train, settings.training)
    base = base_model(settings, problems.train, console)
    plan = plan_expansion(
        base,
        expansion(settings.model, settings.seed, settings.dataset.open_thinking),
        source_kwargs(settings.model),
    )
    train = fitting_prompts(problems.train, plan, settings.training, console)
    require_a_batch(train, settings.training)
    initial_model = _write_initial_model(settings, plan, console)
    start_wandb(settings)
    trainer = _trainer(settings, initial_model, train, problems.eval)
    held_out = HeldOut(
        settings, problems.eval, Checkpoint(trainer.model, trainer.processing_class, plan.layout), console
    )
    accuracy_before = held_out.accuracy("before")
    seconds = _train(trainer, settings, console)
    accuracy_after = held_out.accuracy("after")
    _save_final_model(trainer, settings.output_dir / "final_model")
    summary = {
        "exp_name": settings.exp_name,
        "finished": True,
        "reasoning_vocab_size": plan.layout.size,
        "accuracy_before": accuracy_before,
        "accuracy_after": accuracy_after,
        "held_out_problems": held_out.size,
        "train_problems": len(train),
        "steps": trainer.state.global_step,
        "steps_without_signal": _steps_without_signal(trainer),
        "grpo_seconds": round(seconds, 1),
        "seconds": round(time.monotonic() - started, 1),
        "sample": held_out.sample(),
    }
    if trainer.accelerator.is_main_process:
        write_json(settings.output_dir / SUMMARY, summary)
    closing_words(summary, settings.output_dir, console)
    return 0


def _load_problems(settings: RunSettings, console: Console) -> ProblemSets:
    dataset = settings.dataset
    problems = load_problem_sets(problem_source(dataset), prompt_style(dataset), problem_split(dataset, settings.seed))
    for line in problems.report.lines():
        console.print(line, markup=False)
    return problems


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


def _trainer(settings: RunSettings, initial_model: Path, train: Dataset, held_out: Dataset | None) -> RegionGRPOTrainer:
    functions, _ = build_rewards(reward_specs(settings), settings.model.think_tags)
    args = grpo_config(
        {
            **settings.training.grpo,
            "output_dir": str(settings.output_dir),
            "report_to": settings.logging.report_to,
            "model_init_kwargs": loading_kwargs(settings.model),
        }
    )
    return RegionGRPOTrainer(
        initial_model,
        args,
        kl_log_steps=settings.training.kl_log_steps,
        reward_funcs=functions,
        train_dataset=train,
        eval_dataset=held_out,
        callbacks=[MetricsFile(settings.output_dir / "metrics.jsonl")],
    )


def _steps_without_signal(trainer: RegionGRPOTrainer) -> int:
    """Logged steps in which no group held different rewards: their policy gradient was zero."""
    return sum(row.get("frac_reward_zero_std") == 1.0 for row in trainer.state.log_history)


def _save_final_model(trainer: RegionGRPOTrainer, folder: Path) -> None:
    trainer.save_model(str(folder))
    if trainer.accelerator.is_main_process:
        (folder / TRAINING_ARGS_NAME).unlink(missing_ok=True)  # a pickle, of no use to whoever serves the model


def _train(trainer: RegionGRPOTrainer, settings: RunSettings, console: Console) -> float:
    started = time.monotonic()
    checkpoint = newest_checkpoint(settings.output_dir)
    with stage(console, "GRPO", 1) as display:
        figures = LiveFigures(lambda step, total, shown: display.update(step, shown, total=total))
        trainer.add_callback(figures)
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    return time.monotonic() - started
