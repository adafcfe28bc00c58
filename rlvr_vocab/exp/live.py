"""Between the trainer and whoever watches it: each logged row goes to the display and to the doctor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rlvr_vocab.exp.closing import finding_line, marked_text
from rlvr_vocab.exp.watch import Watch
from rlvr_vocab.rewards.debug import printable
from rlvr_vocab.training.callbacks import logged_row
from rlvr_vocab.training.completions import CompletionRows
from rlvr_vocab.training.live_display import LiveDisplay
from rlvr_vocab.training.trainer import RegionGRPOTrainer
from rlvr_vocab.vocab.chat import prefilled_ids
from rlvr_vocab.vocab.marking import Marker, shortened

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
        stretches = shortened(Marker(tokenizer, layout).stretches(ids), _HEAD, _TAIL)
        escaped = [(printable(surface, len(surface)), copy) for surface, copy in stretches]
        text = Text(f"step {step}, reward {rollouts.total_rewards()[0]:.2f}: ")
        return text.append_text(marked_text(escaped, colour=self._in_colour))
