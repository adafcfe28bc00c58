"""Trains the stages of a run one after another, each from where the one before ended, and remembers how far it came.

A run in one piece is a single stage without a name, whose checkpoints lie in the run's own folder. Those of a named
one lie in `stages/<number>_<name>/`; its `stage.json`, written when it has ended, is what a resumed run goes by.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path

from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from datasets import Dataset
from rich.console import Console

from rlvr_vocab.atomic_file import read_json, write_whole
from rlvr_vocab.config.sections import RunSettings, UntilSettings
from rlvr_vocab.counted import counted
from rlvr_vocab.errors import Interrupted, UserError
from rlvr_vocab.exit_codes import RESUME_ME, write_exit_code
from rlvr_vocab.record.files import STAGE_RECORD
from rlvr_vocab.record.manifest import problem_with, set_aside
from rlvr_vocab.rewards.build import build_rewards
from rlvr_vocab.runs.base_model import loading_kwargs, lora, quantization
from rlvr_vocab.runs.folder import results_file
from rlvr_vocab.runs.held_out import HeldOut
from rlvr_vocab.runs.monitor import DisplayCallback, RunDoctor
from rlvr_vocab.runs.rewards import reward_context
from rlvr_vocab.stop_signals import stop_signals
from rlvr_vocab.terminal import shows_colours
from rlvr_vocab.training.checkpointing.checkpoints import (
    newest_checkpoint,
    newest_checkpoint_for_all,
    set_broken_aside,
    steps_in,
)
from rlvr_vocab.training.checkpointing.save import clear_leftovers
from rlvr_vocab.training.display.live import live_display
from rlvr_vocab.training.metrics_file import MetricsFile
from rlvr_vocab.training.stage import Interruption, StageContext, StopEarly
from rlvr_vocab.training.trainer import RegionGRPOTrainer, grpo_config
from rlvr_vocab.training.unsloth_model import load_with_unsloth
from rlvr_vocab.training.weight_checks import parameter_groups, table_of
from rlvr_vocab.vocab.layout import VocabLayout

HAS_ITS_OWN_CHECKPOINTING = {"gradient_checkpointing": False}  # Unsloth has switched its own on while it loaded


@dataclass(frozen=True)
class StageRecord:
    """What a stage came to.

    Attributes:
        ended_by: `steps`, or the goal that it reached.
        steps_without_signal: logged steps in which no group held different rewards: their policy gradient was zero.
        reward_failures: rows on which a reward function failed, by its name.
    """

    name: str
    steps: int
    ended_by: str
    steps_without_signal: int
    reward_failures: dict[str, int]
    seconds: float


_KINDS = {"steps": int, "ended_by": str, "steps_without_signal": int, "reward_failures": dict, "seconds": (int, float)}


@dataclass(frozen=True)
class Stage:
    """One stage, ready to be trained: its place in the run and the problems that it trains on."""

    number: int
    of: int
    name: str
    settings: RunSettings
    until: UntilSettings | None
    train: Dataset
    longest_prompt: int

    @property
    def title(self) -> str:
        return f"stage {self.number}/{self.of} {self.name}" if self.name else "GRPO"

    @property
    def folder(self) -> Path:
        """Where its checkpoints go."""
        run_folder = self.settings.output_dir
        return run_folder / "stages" / f"{self.number}_{self.name}" if self.name else run_folder

    def record(self) -> StageRecord | None:
        """What it came to; None as long as it has not ended."""
        path = self.folder / STAGE_RECORD
        if not path.is_file():
            return None
        try:
            return StageRecord(**read_json(path, _KINDS))
        except (UserError, TypeError) as error:
            raise UserError(f"{path} is not readable ({error}); remove it to train this stage again") from error


class StagedRun:
    """Goes through the stages of a run, from the first that has not ended.

    Attributes:
        stages: all of them, in their order.
        trainer: the trainer of the stage that is trained, or was trained last.
        records: what each stage came to, as far as they have ended.
        doctor: the doctor beside them.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        initial_model: Path,
        held_out: HeldOut,
        interruption: Interruption,
        doctor: RunDoctor,
        console: Console,
    ) -> None:
        self.stages = stages
        self._initial_model = initial_model
        self._held_out = held_out
        self._interruption = interruption
        self.doctor = doctor
        self._trained_now = 0.0
        self._console = console
        self.records = _ended(stages)
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
            Interrupted: it was told to stop before; the same command goes on.
        """
        while len(self.records) < len(self.stages):
            if self._current != len(self.records):
                stop_signals.require_going_on()
                self._current = len(self.records)
                self._checkpoint = self._checkpoint_of_current("auto")
                del self.trainer
                self.trainer = self._trainer_of_current()
            self.records.append(self._train(self.stages[self._current], self.trainer))

    def stop_if_told_too_late(self) -> None:
        """Save the end of the training where a signal came after its last step, and go no further.

        Raises:
            Interrupted: it did.
        """
        told = [reason for reason in gather_object([stop_signals.reason]) if reason is not None]
        if told:
            self.trainer.checkpoints.save_now()
            raise Interrupted(f"by {told[0]}, after the last step; the same command goes on")

    def _checkpoint_of_current(self, resume: str) -> Path | None:
        """Where the current stage goes on; a stage whose last checkpoint is lost is current once more."""
        found = checkpoint_to_go_on_from(self.stages[self._current].folder, resume, self._console)
        while self.records and self._needs_the_last_end(found):
            ended = self.stages[len(self.records) - 1]
            if checkpoint_of_the_end(ended, self.records[-1]) is not None:
                break
            self.records.pop()
            self._current = len(self.records)
            self._forget_the_end(ended)
            found = checkpoint_to_go_on_from(ended.folder, "auto", self._console)
        return found

    def _needs_the_last_end(self, found: Path | None) -> bool:
        """Whether the weights that the last ended stage has left are those to go on with."""
        return found is None or len(self.records) == len(self.stages)

    def _forget_the_end(self, stage: Stage) -> None:
        self._console.print(
            f"warning: {stage.title} had ended, but its last checkpoint is not whole: it is trained from there again",
            style="yellow",
            markup=False,
        )
        if PartialState().is_main_process:
            (stage.folder / STAGE_RECORD).unlink()
        PartialState().wait_for_everyone()

    def _trainer_of_current(self) -> RegionGRPOTrainer:
        """The trainer of the current stage, with the weights that the stages before it have left."""
        stage = self.stages[self._current]
        before = self.records[: self._current]
        context = StageContext(stage.settings.output_dir, stage.name, sum(record.steps for record in before))
        trainer = stage_trainer(stage, self._initial_model, context, self._held_out, self._interruption)
        if len(self.records) > self._current:  # the last stage has ended: nothing is left to train
            if stage.name and self._checkpoint is not None:
                trainer.checkpoints.load_weights(self._checkpoint)
        elif before and self._checkpoint is None:
            earlier = checkpoint_of_the_end(self.stages[self._current - 1], before[-1])
            assert earlier is not None  # as _checkpoint_of_current has seen to
            trainer.checkpoints.load_weights(earlier)
        return trainer

    def _train(self, stage: Stage, trainer: RegionGRPOTrainer) -> StageRecord:
        for line in table_of(parameter_groups(trainer.model)):
            self._console.print(line, markup=False)
        until, checkpoints = stage.until, trainer.checkpoints
        if self._checkpoint is None or not checkpoints.load_end(self._checkpoint, until):
            self._go_on(stage, trainer)
            self._stop_if_told(stage, trainer)
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
        )
        if stage.name:
            self._close(stage, trainer, record)
        return record

    def _go_on(self, stage: Stage, trainer: RegionGRPOTrainer) -> None:
        if stage.until is not None:
            trainer.add_callback(StopEarly(stage.until))
        if trainer.accelerator.is_main_process:
            results_file(stage.settings.output_dir, "after").unlink(missing_ok=True)  # of weights that now change
        with live_display(self._console, stage.title) as display:
            trainer.add_callback(DisplayCallback(trainer, display, self.doctor, in_colour=shows_colours(self._console)))
            trainer.train(resume_from_checkpoint=None if self._checkpoint is None else str(self._checkpoint))

    def _stop_if_told(self, stage: Stage, trainer: RegionGRPOTrainer) -> None:
        """End the run where a signal, or the clock, has ended the training before its time."""
        state, reason, until = trainer.state, self._interruption.reason, stage.until
        ended = state.global_step >= state.max_steps or (until is not None and until.reached(state.log_history))
        if reason is None or ended:
            return
        saved = max(steps_in(Path(trainer.args.output_dir)), default=None)
        where = f"saved in checkpoint-{saved}" if saved == state.global_step else f"not saved; the last one is {saved}"
        write_exit_code(RESUME_ME)
        trainer.accelerator.wait_for_everyone()  # a launcher ends all processes as soon as it sees one that has ended
        words = f"by {reason} after step {state.global_step}, {where}; the same command goes on"
        raise Interrupted(words if trainer.accelerator.is_main_process else "")

    def _close(self, stage: Stage, trainer: RegionGRPOTrainer, record: StageRecord) -> None:
        """Write down the end of a named stage: its weights first, then that it has ended."""
        trainer.checkpoints.save_now()
        if trainer.accelerator.is_main_process:
            write_whole(stage.folder / STAGE_RECORD, json.dumps(asdict(record), indent=2) + "\n")
        trainer.accelerator.wait_for_everyone()
        self._console.print(f"{stage.title}: {counted(record.steps, 'step')}, ended by {record.ended_by}", markup=False)


def _ended(stages: Sequence[Stage]) -> list[StageRecord]:
    """The records of the stages that have ended, from the first on.

    Raises:
        UserError: a later one has ended, and an earlier one has not.
    """
    records = [stage.record() for stage in stages]
    ended = list(takewhile(lambda record: record is not None, records))
    for stage, record in zip(stages[len(ended) :], records[len(ended) :], strict=True):
        if record is not None:
            missing = stages[len(ended)]
            raise UserError(
                f"{stage.folder} has ended, but {missing.title}, which comes before it, has not: remove that folder "
                "too, and summary.json, to train both again"
            )
    return [record for record in ended if record is not None]


def stage_trainer(
    stage: Stage, initial_model: Path, context: StageContext, held_out: HeldOut, interruption: Interruption
) -> RegionGRPOTrainer:
    """A trainer for one stage; policy and reference are those of the initial model."""
    settings = stage.settings
    layout = VocabLayout.load(initial_model)
    rewards = build_rewards(settings.rewards.functions, reward_context(settings, layout))
    adapter, by_unsloth = lora(settings.model), settings.model.backend == "unsloth"
    seed = settings.training.grpo["seed"] + stage.number - 1
    use_cpu = bool(settings.training.grpo.get("use_cpu"))
    loading = {"model_init_kwargs": loading_kwargs(settings.model, use_cpu=use_cpu)}
    args = grpo_config(
        {
            **settings.training.grpo,
            "seed": seed,
            "output_dir": str(stage.folder),
            "report_to": settings.logging.report_to,
            "num_generations_eval": 1,  # one answer to a held-out problem; TRL wants its batches to hold them all
            **(HAS_ITS_OWN_CHECKPOINTING if by_unsloth else loading),
        }
    )
    loaded = None
    if by_unsloth and adapter is not None:
        loaded = load_with_unsloth(
            initial_model,
            settings.model.unsloth,
            adapter,
            load_in_4bit=settings.model.bits == 4,
            dtype=settings.model.dtype,
            seed=seed,
        )
    return RegionGRPOTrainer(
        initial_model,
        args,
        kl_log_steps=settings.training.kl_log_steps,
        adaptive_weights={reward.name: reward.adaptive for reward in rewards if reward.adaptive is not None},
        stage_context=context,
        lora=adapter,
        model=loaded,
        quantization_config=quantization(settings.model, initial_model),
        reward_funcs=[reward.function for reward in rewards],
        train_dataset=stage.train,
        eval_dataset=held_out.problems,
        measure=held_out.during,
        on_full_disk=settings.on_full_disk,
        callbacks=[MetricsFile(settings.output_dir / "metrics.jsonl", context), interruption],
    )


def checkpoint_of_the_end(stage: Stage, record: StageRecord) -> Path | None:
    """The weights that a stage ended with; None where they do not count any more."""
    return newest_checkpoint_for_all(stage.folder, at_step=record.steps)


def checkpoint_to_go_on_from(folder: Path, resume: str, console: Console) -> Path | None:
    """The checkpoint that training in `folder` goes on from, verified; None for a training from its start.

    The main process looks for it and tells the others. Folders that do not count lose their name, with a warning; so
    do those past a checkpoint that `resume` names.

    Raises:
        UserError: the named checkpoint does not count, or lies elsewhere.
    """
    found: list[Path | None] = [None]
    if PartialState().is_main_process:
        clear_leftovers(folder)
        named = None if resume in ("auto", "never") else Path(resume).expanduser()
        found = [_newest(folder, console) if named is None else _named(named, folder, console)]
    [checkpoint] = broadcast_object_list(found)
    if checkpoint is not None:
        console.print(f"going on from {checkpoint}", markup=False)
    return checkpoint


def _newest(folder: Path, console: Console) -> Path | None:
    for sentence in set_broken_aside(folder):
        console.print(f"warning: {sentence}", style="yellow", markup=False)
    return newest_checkpoint(folder)


def _named(checkpoint: Path, folder: Path, console: Console) -> Path:
    if checkpoint.resolve().parent != folder.resolve():
        raise UserError(
            f"resume={checkpoint}: the training that is to go on has its checkpoints in {folder}; name one of them"
        )
    problem = problem_with(checkpoint)
    if problem is not None:
        raise UserError(f"resume={checkpoint}: it does not count: {problem}")
    named = next(step for step, path in steps_in(folder).items() if path.resolve() == checkpoint.resolve())
    for step, path in steps_in(folder).items():
        if step > named:
            aside = set_aside(path, "later")
            console.print(f"{path.name} is set aside as {aside.name}", markup=False)
    return folder / checkpoint.name
