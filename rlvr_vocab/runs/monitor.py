"""The doctor beside a run that trains: what is wrong with it is told once, on the screen and to Weights & Biases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.text import Text
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.analysis.doctor.watch import Doctor
from rlvr_vocab.record.files import METRICS
from rlvr_vocab.record.metrics import Row, RunFacts, read_metrics
from rlvr_vocab.rewards.debug import printable
from rlvr_vocab.runs.summary import finding_line, marked_text
from rlvr_vocab.training.callbacks import logged_row
from rlvr_vocab.training.completions import CompletionRows
from rlvr_vocab.training.display.live import LiveDisplay
from rlvr_vocab.training.trainer import RegionGRPOTrainer
from rlvr_vocab.vocab.chat import prefilled_ids
from rlvr_vocab.vocab.marking import Marker, shortened


class Watch:
    """Hands rows to a doctor and tells of each finding once in a run, over all its stages and resumes.

    Args:
        folder: that of the run.
        alert: told of each finding, wherever else it goes.
    """

    def __init__(self, facts: RunFacts, folder: Path, alert: Callable[[Finding], None]) -> None:
        self._facts, self._folder, self._alert = facts, folder, alert
        self._doctor = Doctor(facts, folder)
        self._told: set[str] = set()

    def begins(self) -> None:
        """A training begins, or goes on: what the rows on disk show has been told."""
        self._doctor = Doctor(self._facts, self._folder)
        for row in read_metrics(self._folder / METRICS):
            self._told.update(finding.name for finding in self._doctor.look(row))

    def look(self, row: Row) -> list[Finding]:
        """What a new row shows for the first time."""
        return self._new(self._doctor.look(row))

    def ends(self, summary: Row) -> list[Finding]:
        """All that was found in a run, with what its outcome adds."""
        self.begins()
        self._new(self._doctor.close(summary))
        return self._doctor.findings()

    def _new(self, findings: list[Finding]) -> list[Finding]:
        new = [finding for finding in findings if finding.name not in self._told]
        for finding in new:
            self._told.add(finding.name)
            self._alert(finding)
        return new


_STEPS_BETWEEN_COMPLETIONS = 50
# Characters of a completion: more than any display has room for.
_HEAD, _TAIL = 1200, 400


class LiveRun(TrainerCallback):
    """Shows a training on a display.

    Args:
        in_colour: whether the display tells reasoning tokens by their colour; else they stand in brackets.
    """

    def __init__(self, trainer: RegionGRPOTrainer, display: LiveDisplay, watch: Watch, *, in_colour: bool) -> None:
        self._trainer, self._display, self._watch, self._in_colour = trainer, display, watch, in_colour
        self._next_completion = 0

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.is_world_process_zero:
            self._watch.begins()
            self._display.begins(state.global_step, state.max_steps)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        row = logged_row(self._trainer.place, state, logs)
        if not state.is_world_process_zero or row is None:
            return
        self._display.row(row, state.global_step, state.max_steps)
        for finding in self._watch.look(row):
            self._display.finding(finding_line(finding.title, finding.step), finding.evidence)
        rollouts = self._trainer.newest_rollouts
        if rollouts is not None and row["step"] >= self._next_completion:
            self._next_completion = (row["step"] // _STEPS_BETWEEN_COMPLETIONS + 1) * _STEPS_BETWEEN_COMPLETIONS
            self._display.completion(self._shown(rollouts, row["step"]))

    def _shown(self, rollouts: CompletionRows, step: int) -> Text:
        """The first completion of a batch; a model may write anything, so a terminal gets nothing that it obeys."""
        tokenizer, layout = self._trainer.processing_class, self._trainer.policy.layout
        ids = [*prefilled_ids(rollouts.prompt_ids[0], layout), *rollouts.completion_ids[0]]
        spans = shortened(Marker(tokenizer, layout).spans(ids), _HEAD, _TAIL)
        escaped = [(printable(surface, len(surface)), copy) for surface, copy in spans]
        text = Text(f"step {step}, reward {rollouts.total_rewards()[0]:.2f}: ")
        return text.append_text(marked_text(escaped, colour=self._in_colour))
