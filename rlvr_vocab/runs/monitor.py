"""A run while it trains: its display, the findings of the doctor, and the Weights & Biases run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from accelerate import PartialState
from rich.text import Text
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rlvr_vocab.analysis.doctor.diagnose import Doctor
from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.errors import block_signals_in_children
from rlvr_vocab.record.files import METRICS
from rlvr_vocab.record.metrics import Row, RunFacts, read_metrics
from rlvr_vocab.runs.summary import finding_line, marked_text
from rlvr_vocab.text import visible_text
from rlvr_vocab.training.display import LiveDisplay
from rlvr_vocab.training.metrics.completions import CompletionRows
from rlvr_vocab.training.stage import logged_row, record_wandb, recorded_wandb
from rlvr_vocab.training.trainer import RegionGRPOTrainer
from rlvr_vocab.vocab.marking import Marker, shortened
from rlvr_vocab.vocab.tokenizer import prefilled_ids


class RunDoctor:
    """Calls `alert` with each finding of the doctor once in a run, over all its stages and resumes."""

    def __init__(self, facts: RunFacts, folder: Path, alert: Callable[[Finding], None]) -> None:
        self._facts, self._folder, self._alert = facts, folder, alert
        self._doctor = Doctor(facts)
        self._reported: set[str] = set()

    def start(self) -> None:
        """Begin or resume a training: findings of the rows on disk have been reported."""
        self._doctor = Doctor(self._facts)
        for row in read_metrics(self._folder / METRICS):
            self._reported.update(finding.name for finding in self._doctor.look(row))

    def new_findings(self, row: Row) -> list[Finding]:
        """The findings that a new row shows first."""
        return self._new(self._doctor.look(row))

    def finish(self, summary: Row) -> list[Finding]:
        """All findings of a run, with those of its outcome."""
        self.start()
        self._new(self._doctor.close(summary))
        return self._doctor.findings()

    def _new(self, findings: list[Finding]) -> list[Finding]:
        new = [finding for finding in findings if finding.name not in self._reported]
        for finding in new:
            self._reported.add(finding.name)
            self._alert(finding)
        return new


_STEPS_BETWEEN_COMPLETIONS = 50
# Characters of a completion: more than any display has room for.
_HEAD, _TAIL = 1200, 400


class DisplayCallback(TrainerCallback):
    """Shows a training on a display, with reasoning tokens in colour or in brackets."""

    def __init__(self, trainer: RegionGRPOTrainer, display: LiveDisplay, doctor: RunDoctor, *, in_colour: bool) -> None:
        self._trainer, self._display, self._doctor, self._in_colour = trainer, display, doctor, in_colour
        self._next_completion = 0

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.is_world_process_zero:
            self._doctor.start()
            self._display.begins(state.global_step, state.max_steps)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        row = logged_row(self._trainer.stage_context, state.global_step, logs)
        if not state.is_world_process_zero or row is None:
            return
        self._display.row(row, state.global_step, state.max_steps)
        for finding in self._doctor.new_findings(row):
            self._display.finding(finding_line(finding.title, finding.step), finding.evidence)
        rollouts = self._trainer.newest_rollouts
        if rollouts is not None and row["step"] >= self._next_completion:
            self._next_completion = (row["step"] // _STEPS_BETWEEN_COMPLETIONS + 1) * _STEPS_BETWEEN_COMPLETIONS
            self._display.completion(self._sample_text(rollouts, row["step"]))

    def _sample_text(self, rollouts: CompletionRows, step: int) -> Text:
        """The first completion of a batch; a model may write anything, so a terminal gets nothing that it obeys."""
        tokenizer, layout = self._trainer.processing_class, self._trainer.policy.layout
        ids = [*prefilled_ids(rollouts.prompt_ids[0], layout), *rollouts.completion_ids[0]]
        spans = shortened(Marker(tokenizer, layout).spans(ids), _HEAD, _TAIL)
        escaped = [each._replace(text=visible_text(each.text, "⏎")) for each in spans]
        text = Text(f"step {step}, reward {rollouts.total_rewards()[0]:.2f}: ")
        return text.append_text(marked_text(escaped, colour=self._in_colour))


_LONGEST_TITLE = 63  # W&B takes fewer than 64 characters
_SECONDS_BETWEEN_ALERTS = 600.0  # of one title: a run that is killed and resumed may find the same thing again
_LEVELS = {"warning": "WARN", "error": "ERROR"}


def start_wandb(settings: RunSettings) -> None:
    """Start the run that the trainer logs to, or go on with it, in the main process; nothing where W&B is off."""
    if settings.logging.report_to != "wandb":
        return
    import wandb

    known = recorded_wandb(settings.output_dir)
    with block_signals_in_children():
        run = wandb.init(
            project=settings.logging.project,
            name=settings.exp_name,
            mode=settings.logging.mode,
            config=settings.resolved,
            dir=str(settings.output_dir),
            id=known.get("id"),
            resume="allow",
        )
    if not known:
        record_wandb(settings.output_dir, run.id, 0)


def alert(settings: RunSettings, finding: Finding) -> None:
    """Send a finding as an alert of the run; nothing where W&B is off, or by another process."""
    if settings.logging.report_to != "wandb" or not PartialState().is_main_process:
        return
    import wandb

    if wandb.run is None:
        return
    wandb.run.alert(
        title=finding.title[:_LONGEST_TITLE],
        text="\n".join([f"{settings.exp_name}: {finding.evidence}", finding.cause, finding.remedy]),
        level=_LEVELS[finding.severity],
        wait_duration=_SECONDS_BETWEEN_ALERTS,
    )
