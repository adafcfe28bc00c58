"""Where a trainer stands in a run of several stages: which stage it trains, and how many steps went before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rlvr_vocab.counted import counted


@dataclass(frozen=True)
class RunPlace:
    """The folder of the whole run, the name of the stage (empty in a run in one piece), the steps before it."""

    run_folder: Path
    stage: str = ""
    first_step: int = 0

    def step(self, stage_step: int) -> int:
        """The step of the run that a step of the stage is."""
        return self.first_step + stage_step

    def columns(self, stage_step: int) -> dict[str, Any]:
        """What says of a row to which step it belongs."""
        step = {"step": self.step(stage_step)}
        return {**step, "stage": self.stage, "stage_step": stage_step} if self.stage else step


@dataclass(frozen=True)
class Goal:
    """The mean of `metric` over the last `window` logged steps is above, or below, a value."""

    metric: str
    above: float | None = None
    below: float | None = None
    window: int = 20

    def reached(self, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Whether the last rows reach it; rows without the metric are passed over.

        >>> Goal("reward", above=0.5, window=2).reached([{"reward": 0.0}, {"reward": 0.5}, {"reward": 0.7}])
        True
        """
        values = [float(row[self.metric]) for row in rows if self.metric in row][-self.window :]
        if len(values) < self.window:
            return False
        mean = sum(values) / len(values)
        return mean > self.above if self.above is not None else self.below is not None and mean < self.below

    def __str__(self) -> str:
        bound = f"above {self.above}" if self.above is not None else f"below {self.below}"
        return f"{self.metric} {bound} over {counted(self.window, 'step')}"


class StopAtGoal(TrainerCallback):
    """Stops the training at the first logged step that reaches the goal.

    It looks at the logged history alone, which a checkpoint holds: a resumed stage stops at the same step.
    """

    def __init__(self, goal: Goal) -> None:
        self._goal = goal

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        if not logs or "loss" not in logs:
            return
        if self._goal.reached(state.log_history):
            control.should_training_stop = True
