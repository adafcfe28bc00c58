"""The stages of a run, trained in turn, each from the weights of the previous one.

A run in one piece is a single stage without a name, whose checkpoints lie in the run's own folder. Those of a named
one lie in `stages/<number>_<name>/`; its `stage.json`, written when it has ended, decides where a resumed run goes on.
"""

from __future__ import annotations

import gc
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from datasets import Dataset
from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from transformers import TrainerCallback, TrainerControl, TrainerState

from rlvr_vocab.analysis.doctor.diagnose import Doctor
from rlvr_vocab.analysis.doctor.history import Finding
from rlvr_vocab.config.sections import RunSettings, UntilSettings, stage_error_context, stages_of
from rlvr_vocab.errors import RESUME_ME, Interrupted, UserError, stop_signals, write_exit_code
from rlvr_vocab.files import atomic_write
from rlvr_vocab.record.files import METRICS, STAGE_RECORD
from rlvr_vocab.record.manifest import set_aside
from rlvr_vocab.record.metrics import Row, RunFacts, read_metrics
from rlvr_vocab.rewards.build import build_rewards, load_attribute, overridden
from rlvr_vocab.runs.folder import Run, results_file, run_facts
from rlvr_vocab.runs.held_out import HeldOutEvaluator
from rlvr_vocab.runs.model import loading_kwargs
from rlvr_vocab.runs.problems import RunProblems, fitting_prompts, require_a_batch
from rlvr_vocab.runs.rewards import reward_context, solved_by
from rlvr_vocab.runs.tools import tools_of_run
from rlvr_vocab.text import listed, pluralize
from rlvr_vocab.training.arguments import grpo_config
from rlvr_vocab.training.checkpoint_folders import clear_leftovers, newest_for_all, problem_of_checkpoint, steps_in
from rlvr_vocab.training.display import LiveDisplay, live_display
from rlvr_vocab.training.metrics.step_clock import peak_memory
from rlvr_vocab.training.metrics.weights import parameter_table
from rlvr_vocab.training.models.lora import quantization_config
from rlvr_vocab.training.stage import (
    MetricsFile,
    StageContext,
    StopEarly,
    StopOnSignalOrTime,
    logged_row,
    start_trackers,
    write_rows_until_now,
)
from rlvr_vocab.training.trainer import RegionGRPOTrainer
from rlvr_vocab.vocab.expand import ExpansionPlan


@dataclass(frozen=True)
class StageRecord:
    """The content of `stage.json`."""

    name: str
    steps: int
    ended_by: str  # `steps`, or the goal that it reached
    reward_failures: dict[str, int]  # rows on which each reward function failed, by its name
    seconds: float
    drawn: dict[str, Any] | None = None  # numbers of problems drawn and skipped under dynamic sampling


@dataclass(frozen=True)
class Stage:
    """One stage, ready to train: its number in the run, its problems, and the number of tokens of each prompt."""

    number: int
    of: int
    name: str
    settings: RunSettings
    until: UntilSettings | None
    train: Dataset
    prompt_lengths: tuple[int, ...]

    @property
    def title(self) -> str:
        return f"stage {self.number}/{self.of} {self.name}" if self.name else "GRPO"

    @property
    def folder(self) -> Path:
        """The folder of its checkpoints."""
        run_folder = self.settings.output_dir
        return run_folder / "stages" / f"{self.number}_{self.name}" if self.name else run_folder

    def record(self) -> StageRecord | None:
        """The record of the stage if it has ended, else None."""
        path = self.folder / STAGE_RECORD
        try:
            return TypeAdapter(StageRecord).validate_json(path.read_bytes()) if path.is_file() else None
        except ValidationError as error:
            raise UserError(f"{path} is damaged; remove it to train this stage again") from error


def make_stages(settings: RunSettings, problems: RunProblems, plan: ExpansionPlan, console: Console) -> list[Stage]:
    """The stages of a run, each with the problems whose prompts fit its limits."""
    stages = []
    written = stages_of(settings)
    for number, (stage, rows) in enumerate(zip(written, problems.by_stage, strict=True), start=1):
        with stage_error_context(stage.name):
            train, lengths = fitting_prompts(rows, plan, stage.run, console)
            require_a_batch(train, stage.run.training)
        stages.append(Stage(number, len(written), stage.name, stage.run, stage.until, train, tuple(lengths)))
    return stages


def ended_records(stages: Sequence[Stage]) -> list[StageRecord]:
    """The records of the ended stages; UserError if a stage has ended before an earlier one."""
    records = [stage.record() for stage in stages]
    ended = [record for record in records if record is not None]
    if ended != records[: len(ended)]:
        missing = stages[records.index(None)]
        raise UserError(
            f"{missing.title} has not ended, but a later stage has: remove the later folders in "
            f"{missing.folder.parent}, and summary.json, to train them again"
        )
    return ended


def checkpoint_to_resume(folder: Path, resume: str, console: Console) -> Path | None:
    """The valid checkpoint that a stage resumes from, or None; UserError for a `resume` that is broken or elsewhere."""
    if PartialState().is_main_process:
        clear_leftovers(folder)
        if resume != "auto":
            _set_later_aside(resume, folder, console)
            (folder / STAGE_RECORD).unlink(missing_ok=True)  # where the stage has ended, it is trained further
    checkpoint = newest_for_all(folder)
    if checkpoint is not None:
        console.print(f"going on from {checkpoint}", markup=False)
    return checkpoint


def _set_later_aside(resume: str, folder: Path, console: Console) -> None:
    """Rename the checkpoints that are later than the named one."""
    checkpoint, steps = Path(resume).expanduser(), steps_in(folder)
    named = next((step for step, path in steps.items() if path.resolve() == checkpoint.resolve()), None)
    if named is None:
        raise UserError(f"resume={resume}: the checkpoints of the training to resume are in {folder}; name one of them")
    problem = problem_of_checkpoint(checkpoint)
    if problem is not None:
        raise UserError(f"resume={resume}: it is not valid: {problem}")
    for step, path in steps.items():
        if step > named:
            console.print(f"{path.name} is renamed to {set_aside(path, 'later').name}", markup=False)


class StagedRun:
    """The loop over the stages of a run, from the first that has not ended."""

    trainer_class: type[RegionGRPOTrainer] = RegionGRPOTrainer
    trainer: RegionGRPOTrainer  # of the current stage, or of the last one

    def __init__(self, run: Run, stages: Sequence[Stage], held_out: HeldOutEvaluator, stop: StopOnSignalOrTime) -> None:
        self._run, self._stages, self._held_out, self._stop = run, stages, held_out, stop
        self._console = run.console
        if PartialState().is_main_process:
            logging = run.settings.logging
            wandb = {"mode": logging.mode, "config": run.settings.resolved, "dir": str(run.folder)}
            start_trackers(run.folder, logging.report_to, logging.project, run.settings.exp_name, **wandb)
        self.records = ended_records(stages)
        self.seconds_of_earlier_starts = 0.0  # of training, before the current start of the run

    @property
    def steps(self) -> int:
        return sum(record.steps for record in self.records)

    @property
    def step_of_the_weights(self) -> int | None:
        """The step of the run that the weights are from; None if the best checkpoint was loaded at the end."""
        return None if self.trainer.args.load_best_model_at_end else self.steps

    def train(self) -> None:
        """Train the stages that have not ended; Interrupted after a signal or the time limit, to be resumed."""
        resume = self._stages[0].settings.resume
        if len(self.records) == len(self._stages):
            if resume == "auto":
                self.trainer = self._make_trainer(self._stages[-1])
                self._load_last_stage()
            else:  # a named checkpoint reopens the last stage
                self.records.pop()
        self.seconds_of_earlier_starts = sum(record.seconds for record in self.records)
        for stage in self._stages[len(self.records) :]:
            checkpoint = checkpoint_to_resume(stage.folder, resume, self._console)
            resume = "auto"
            self.trainer = self._make_trainer(stage)
            if not self.records:
                self._held_out.measure_before(self.trainer)
            elif checkpoint is None:
                self._load_last_stage()
            self.records.append(self._train(stage, checkpoint))
            if stage is not self._stages[-1]:
                stop_signals.require_going_on()
                del self.trainer
                gc.collect()  # reference cycles would keep the trainer's model and optimizer in memory
        reasons = [reason for reason in gather_object([stop_signals.reason]) if reason is not None]
        if reasons:
            self.trainer.checkpoints.save_now()
            raise Interrupted(f"by {reasons[0]}, after the last step; the same command goes on")
        if self.trainer.optimizer is not None and not self.trainer.is_deepspeed_enabled:  # it keeps weights there
            self.trainer.optimizer.state.clear()  # twice the weights under Adam, before the model is evaluated

    def _load_last_stage(self) -> None:
        """Load the weights of the last stage that has ended."""
        folder, steps = self._stages[len(self.records) - 1].folder, self.records[-1].steps
        last = folder / f"checkpoint-{steps}"
        [problem] = broadcast_object_list([problem_of_checkpoint(last) if PartialState().is_main_process else None])
        if problem is not None:
            raise UserError(
                f"{last}: {problem}; the stage has ended: remove {folder / STAGE_RECORD} and later stages to resume it"
            )
        self.trainer.checkpoints.load_weights(last)

    def summary(self) -> dict[str, Any]:
        """The figures of the training in `summary.json`."""
        failures = sum((Counter(record.reward_failures) for record in self.records), Counter())
        summary: dict[str, Any] = {
            "exp_name": self._run.settings.exp_name,
            "finished": True,
            "reasoning_vocab_size": self._run.layout.size,
            "train_problems": len(self._stages[0].train),
            "steps": self.steps,
            "reward_failures": dict(failures),
            "grpo_seconds": round(sum(record.seconds for record in self.records), 1),
        }
        if self._run.settings.stages:
            summary["stages"] = [asdict(record) for record in self.records]
        elif self.records[0].drawn:
            summary["drawn"] = self.records[0].drawn
        return summary

    @peak_memory.phase("loading")
    def _make_trainer(self, stage: Stage) -> RegionGRPOTrainer:
        """A trainer for one stage; policy and reference are those of the initial model."""
        settings, training, model = stage.settings, stage.settings.training, stage.settings.model
        initial_model = self._run.initial_model
        first_step = sum(record.steps for record in self.records[: stage.number - 1])
        context = StageContext(self._run.folder, stage.name, first_step)
        rewards = build_rewards(settings.rewards.functions, reward_context(settings))
        use_cpu = bool(training.grpo.get("use_cpu"))
        args = grpo_config(
            {
                **training.grpo,
                "seed": training.grpo["seed"] + stage.number - 1,
                "output_dir": str(stage.folder),
                "report_to": settings.logging.report_to,
                "project": settings.logging.project,
                "push_to_hub": False,  # the run does it at its end
                "num_generations_eval": 1,  # one answer to a held-out problem; TRL's batches must hold all
                "model_init_kwargs": loading_kwargs(model, use_cpu=use_cpu),
            }
        )
        trainer_class = self.trainer_class
        if training.trainer is not None:
            trainer_class = load_attribute(training.trainer, "training.trainer")
            own = listed(overridden(trainer_class, RegionGRPOTrainer) or ["__init__"])
            self._console.print(f"{Path(training.trainer).name} overrides {own}", markup=False)
        return trainer_class(
            initial_model,
            args=args,
            kl_log_steps=training.kl_log_steps,
            kl_over=training.kl_over,
            max_rounds=training.max_rounds if training.dynamic_sampling else 1,
            curriculum=settings.dataset.curriculum,
            solved_by=solved_by(settings),
            adaptive_weights={reward.name: reward.adaptive for reward in rewards if reward.adaptive is not None},
            stage_context=context,
            peft_config=model.lora if model.trains_adapter else None,
            quantization_config=model.bits and quantization_config(model.bits, initial_model, model.dtype, use_cpu),
            reward_funcs=rewards,
            train_dataset=stage.train,
            eval_dataset=self._held_out.problems,
            measure=self._held_out.during,
            on_full_disk=settings.on_full_disk,
            callbacks=[MetricsFile(self._run.folder / METRICS, context), self._stop],
            **tools_of_run(settings),
        )

    def _train(self, stage: Stage, checkpoint: Path | None) -> StageRecord:
        trainer, until, checkpoints = self.trainer, stage.until, self.trainer.checkpoints
        self._console.print(*parameter_table(trainer.model), sep="\n", markup=False)
        if checkpoint is None or not checkpoints.load_if_finished(checkpoint, until):
            self._train_steps(stage, checkpoint)
        elif trainer.accelerator.is_main_process:
            write_rows_until_now(self._run.folder / METRICS, trainer.stage_context, trainer.state)
        state = trainer.state
        reached = until is not None and until.reached(state.log_history)
        self.seconds_of_earlier_starts += checkpoints.seconds_before
        record = StageRecord(
            name=stage.name,
            steps=state.global_step,
            ended_by=f"until {until}" if reached else "steps",
            reward_failures=checkpoints.reward_failures(),
            seconds=round(checkpoints.trained_seconds, 1),
            drawn=None if trainer.dynamic_sampling is None else trainer.dynamic_sampling.order.summary(),
        )
        if stage.name:
            checkpoints.save_now()
            if trainer.accelerator.is_main_process:
                atomic_write(stage.folder / STAGE_RECORD, json.dumps(asdict(record), indent=2) + "\n")
            trainer.accelerator.wait_for_everyone()
            steps = pluralize(record.steps, "step")
            self._console.print(f"{stage.title}: {steps}, ended by {record.ended_by}", markup=False)
        return record

    def _train_steps(self, stage: Stage, checkpoint: Path | None) -> None:
        trainer, until = self.trainer, stage.until
        if until is not None:
            trainer.add_callback(StopEarly(until))
        if trainer.accelerator.is_main_process:
            results_file(self._run.folder, "after").unlink(missing_ok=True)  # stale: the weights change now

        shown = live_display(self._console, stage.title, peak_memory.current)
        with stage_error_context(stage.name), shown as display:
            facts = run_facts(self._run.settings.resolved, self._run.folder)
            trainer.add_callback(DisplayCallback(facts, trainer.stage_context, display))
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        state, reason = trainer.state, self._stop.reason
        ended = state.global_step >= state.max_steps or (until is not None and until.reached(state.log_history))
        if reason is None or ended:
            return
        saved = max(steps_in(stage.folder), default="none")
        write_exit_code(RESUME_ME)
        trainer.accelerator.wait_for_everyone()  # a launcher kills all processes once one has exited
        message = f"by {reason} after step {state.global_step}, saved in checkpoint-{saved}; the same command goes on"
        raise Interrupted(message if trainer.accelerator.is_main_process else "")


# --- during training ---


class DisplayCallback(TrainerCallback):
    """Shows each logged row, and each finding of the doctor once over all stages and resumes."""

    def __init__(self, facts: RunFacts, context: StageContext, display: LiveDisplay) -> None:
        self._context, self._display = context, display
        self._doctor = Doctor(facts)
        self._known: set[str] = set()

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.is_world_process_zero:
            for row in read_metrics(self._context.run_folder / METRICS):  # their findings were shown before
                self._new_findings(row)
            self._display.begins(state.global_step, state.max_steps)

    def on_step_begin(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._display.step_begins()

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, logs: Any = None, **_: Any) -> None:
        row = logged_row(self._context, state.global_step, logs)
        if state.is_world_process_zero and row is not None:
            self._display.row(row, state.global_step, state.max_steps)
            for finding in self._new_findings(row):
                self._display.finding(f"{finding.title} (step {finding.step})", finding.evidence)

    def _new_findings(self, row: Row) -> list[Finding]:
        new = [finding for finding in self._doctor.look(row) if finding.name not in self._known]
        self._known.update(finding.name for finding in new)
        return new
