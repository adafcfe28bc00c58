"""Where a trainer stands in a run of several stages: which stage it trains, and how many steps went before."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


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
