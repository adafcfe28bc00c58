"""Trains the stages of a run one after another, each from the weights that the one before it has left."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path

from accelerate import PartialState
from accelerate.utils import gather_object
from rich.console import Console

from rlvr_vocab.errors import RESUME_ME, Interrupted, write_exit_code
from rlvr_vocab.record.files import METRICS, STAGE_RECORD
from rlvr_vocab.rewards.build import build_rewards
from rlvr_vocab.runs.folder import results_file
from rlvr_vocab.runs.held_out import HeldOutEvaluator
from rlvr_vocab.runs.model import loading_kwargs, quantization
from rlvr_vocab.runs.monitor import DisplayCallback, RunDoctor
from rlvr_vocab.runs.rewards import reward_context, solved_by
from rlvr_vocab.runs.stages import Stage, StageRecord, ended_records
from rlvr_vocab.signals import stop_signals
from rlvr_vocab.terminal import shows_colours
from rlvr_vocab.text import pluralize
from rlvr_vocab.training.arguments import grpo_config
from rlvr_vocab.training.checkpointing.find import steps_in
from rlvr_vocab.training.display import live_display
from rlvr_vocab.training.metrics.logged_rows import MetricsFile, write_rows_until_now
from rlvr_vocab.training.metrics.step_clock import peak_memory
from rlvr_vocab.training.metrics.weights import parameter_groups, parameter_table
from rlvr_vocab.training.stage import StageContext, StopEarly, StopOnSignalOrTime
from rlvr_vocab.training.trainer import RegionGRPOTrainer
from rlvr_vocab.vocab.layout import VocabLayout


class StagedRun:
    """Goes through the stages of a run, from the first that has not ended.

    Attributes:
        stages: all of them, in their order.
        trainer: the trainer of the stage that is trained, or was trained last.
        records: what each stage came to, as far as they have ended.
        doctor: the doctor beside them.
        trainer_class: what trains each stage.
    """

    trainer_class: type[RegionGRPOTrainer] = RegionGRPOTrainer

    def __init__(
        self,
        stages: Sequence[Stage],
        initial_model: Path,
        held_out: HeldOutEvaluator,
        stop: StopOnSignalOrTime,
        doctor: RunDoctor,
        console: Console,
    ) -> None:
        self.stages = stages
        self._initial_model = initial_model
        self._held_out = held_out
        self._stop = stop
        self.doctor = doctor
        self._trained_now = 0.0
        self._console = console
        self.records = ended_records(stages)
        self._current = min(len(self.records), len(stages) - 1)
        self._checkpoint = self._checkpoint_of_current(stages[0].settings.resume)
        self.trainer = self._trainer_of_current()

    @property
    def steps(self) -> int:
        return sum(record.steps for record in self.records)

    @property
    def seconds_of_earlier_starts(self) -> float:
        """Seconds that were trained before this start of the run."""
        return sum(record.seconds for record in self.records) - self._trained_now

    @property
    def step_of_the_weights(self) -> int | None:
        """The step of the run that has made the weights; None where the end has loaded those of the best one."""
        return None if self.trainer.args.load_best_model_at_end else self.steps

    def train(self) -> None:
        """Train what is left of the run.

        Raises:
            Interrupted: a signal or the clock stopped it before; the same command goes on.
        """
        while len(self.records) < len(self.stages):
            if self._current != len(self.records):
                stop_signals.require_going_on()
                self._current = len(self.records)
                self._checkpoint = self._checkpoint_of_current("auto")
                del self.trainer
                gc.collect()  # its objects know each other: the model and its optimizer would stay beside the next
                self.trainer = self._trainer_of_current()
            self.records.append(self._train(self.stages[self._current], self.trainer))

    def stop_after_the_last_step(self) -> None:
        """Save the end of the training where a signal came after its last step, and go no further.

        Raises:
            Interrupted: it did.
        """
        reasons = [reason for reason in gather_object([stop_signals.reason]) if reason is not None]
        if reasons:
            self.trainer.checkpoints.save_now()
            raise Interrupted(f"by {reasons[0]}, after the last step; the same command goes on")

    def drop_optimizer_state(self) -> None:
        """Make room, twice the weights under Adam, for what measures and writes the model once nothing trains it."""
        if self.trainer.optimizer is not None and not self.trainer.is_deepspeed_enabled:  # whose weights it holds
            self.trainer.optimizer.state.clear()

    def _checkpoint_of_current(self, resume: str) -> Path | None:
        """Where the current stage goes on; a stage whose last checkpoint is lost is current once more."""
        found = self.stages[self._current].checkpoint_to_resume(resume, self._console)
        while self.records and self._needs_final_checkpoint(found):
            ended = self.stages[len(self.records) - 1]
            if ended.final_checkpoint(self.records[-1]) is not None:
                break
            self.records.pop()
            self._current = len(self.records)
            self._train_again(ended)
            found = ended.checkpoint_to_resume("auto", self._console)
        return found

    def _needs_final_checkpoint(self, found: Path | None) -> bool:
        """Whether the training goes on from the weights that the last ended stage has left."""
        return found is None or len(self.records) == len(self.stages)

    def _train_again(self, stage: Stage) -> None:
        self._console.print(
            f"warning: {stage.title} had ended, but its last checkpoint is not whole: it is trained from there again",
            style="yellow",
            markup=False,
        )
        if PartialState().is_main_process:
            (stage.folder / STAGE_RECORD).unlink()
        PartialState().wait_for_everyone()

    @peak_memory.phase("loading")
    def _trainer_of_current(self) -> RegionGRPOTrainer:
        """The trainer of the current stage, with the weights that the stages before it have left."""
        stage = self.stages[self._current]
        before = self.records[: self._current]
        context = StageContext(stage.settings.output_dir, stage.name, sum(record.steps for record in before))
        trainer = _stage_trainer(self.trainer_class, stage, self._initial_model, context, self._held_out, self._stop)
        if len(self.records) > self._current:  # the last stage has ended: nothing is left to train
            if stage.name and self._checkpoint is not None:
                trainer.checkpoints.load_weights(self._checkpoint)
        elif before and self._checkpoint is None:
            earlier = self.stages[self._current - 1].final_checkpoint(before[-1])
            assert earlier is not None  # as _checkpoint_of_current has seen to
            trainer.checkpoints.load_weights(earlier)
        return trainer

    def _train(self, stage: Stage, trainer: RegionGRPOTrainer) -> StageRecord:
        for line in parameter_table(parameter_groups(trainer.model)):
            self._console.print(line, markup=False)
        until, checkpoints = stage.until, trainer.checkpoints
        if self._checkpoint is None or not checkpoints.load_end(self._checkpoint, until):
            self._go_on(stage, trainer)
            self._stop_if_interrupted(stage, trainer)
        elif trainer.accelerator.is_main_process:
            write_rows_until_now(stage.settings.output_dir / METRICS, trainer.stage_context, trainer.state)
        history = trainer.state.log_history
        reached = until is not None and until.reached(history)
        self._trained_now += checkpoints.trained_seconds - checkpoints.seconds_before
        record = StageRecord(
            name=stage.name,
            steps=trainer.state.global_step,
            ended_by=f"until {until}" if reached else "steps",
            steps_without_signal=sum(row.get("frac_reward_zero_std") == 1.0 for row in history),
            reward_failures={reward.name: reward.failures for reward in trainer.reward_funcs if reward.failures},
            seconds=round(checkpoints.trained_seconds, 1),
            drawn=None if trainer.dynamic_sampling is None else trainer.dynamic_sampling.order.summary(),
        )
        if stage.name:
            self._end(stage, trainer, record)
        return record

    def _go_on(self, stage: Stage, trainer: RegionGRPOTrainer) -> None:
        if stage.until is not None:
            trainer.add_callback(StopEarly(stage.until))
        if trainer.accelerator.is_main_process:
            results_file(stage.settings.output_dir, "after").unlink(missing_ok=True)  # of weights that now change
        with live_display(self._console, stage.title) as display:
            trainer.add_callback(DisplayCallback(trainer, display, self.doctor, in_colour=shows_colours(self._console)))
            trainer.train(resume_from_checkpoint=None if self._checkpoint is None else str(self._checkpoint))

    def _stop_if_interrupted(self, stage: Stage, trainer: RegionGRPOTrainer) -> None:
        """End the run where a signal, or the clock, has ended the training before its time."""
        state, reason, until = trainer.state, self._stop.reason, stage.until
        ended = state.global_step >= state.max_steps or (until is not None and until.reached(state.log_history))
        if reason is None or ended:
            return
        saved = max(steps_in(Path(trainer.args.output_dir)), default=None)
        where = f"saved in checkpoint-{saved}" if saved == state.global_step else f"not saved; the last one is {saved}"
        write_exit_code(RESUME_ME)
        trainer.accelerator.wait_for_everyone()  # a launcher ends all processes as soon as it sees one that has ended
        words = f"by {reason} after step {state.global_step}, {where}; the same command goes on"
        raise Interrupted(words if trainer.accelerator.is_main_process else "")

    def _end(self, stage: Stage, trainer: RegionGRPOTrainer, record: StageRecord) -> None:
        """Save the weights of a named stage, then that it has ended."""
        trainer.checkpoints.save_now()
        if trainer.accelerator.is_main_process:
            stage.write_record(record)
        trainer.accelerator.wait_for_everyone()
        self._console.print(
            f"{stage.title}: {pluralize(record.steps, 'step')}, ended by {record.ended_by}", markup=False
        )


def _stage_trainer(
    trainer_class: type[RegionGRPOTrainer],
    stage: Stage,
    initial_model: Path,
    context: StageContext,
    held_out: HeldOutEvaluator,
    stop: StopOnSignalOrTime,
) -> RegionGRPOTrainer:
    """A trainer for one stage; policy and reference are those of the initial model."""
    settings = stage.settings
    layout = VocabLayout.load(initial_model)
    rewards = build_rewards(settings.rewards.functions, reward_context(settings, layout))
    adapter = settings.model.lora if settings.model.trains_adapter else None
    seed = settings.training.grpo["seed"] + stage.number - 1
    use_cpu = bool(settings.training.grpo.get("use_cpu"))
    args = grpo_config(
        {
            **settings.training.grpo,
            "seed": seed,
            "output_dir": str(stage.folder),
            "report_to": settings.logging.report_to,
            "num_generations_eval": 1,  # one answer to a held-out problem; TRL wants its batches to hold them all
            "model_init_kwargs": loading_kwargs(settings.model, use_cpu=use_cpu),
        }
    )
    return trainer_class(
        initial_model,
        args=args,
        kl_log_steps=settings.training.kl_log_steps,
        kl_over=settings.training.kl_over,
        max_rounds=settings.training.max_rounds if settings.training.dynamic_sampling else 1,
        curriculum=settings.dataset.curriculum,
        solved_by=solved_by(settings),
        adaptive_weights={reward.name: reward.adaptive for reward in rewards if reward.adaptive is not None},
        stage_context=context,
        peft_config=adapter,
        quantization_config=quantization(settings.model, initial_model, use_cpu=use_cpu),
        reward_funcs=rewards,
        train_dataset=stage.train,
        eval_dataset=held_out.problems,
        measure=held_out.during,
        on_full_disk=settings.on_full_disk,
        callbacks=[MetricsFile(settings.output_dir / METRICS, context), stop],
    )
