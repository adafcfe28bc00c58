"""A run while it trains: its rows on the display, and each finding of the doctor once."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.runs.folder import run_facts
from rlvr_vocab.runs.stages import DisplayCallback
from rlvr_vocab.training.stage import StageContext


class Shown:
    """A display that keeps its calls."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.findings: list[str] = []

    def begins(self, step: int, steps: int) -> None:
        pass

    def row(self, row: Any, step: int, steps: int) -> None:
        self.rows.append(row["step"])

    def finding(self, line: str, evidence: str) -> None:
        self.findings.append(line)


def test_the_main_process_shows_each_row_and_a_finding_once_over_stages_and_resumes(tmp_path: Path) -> None:
    """The KL is too high after step 30."""
    facts = run_facts(read_settings("train", ["experiment=quickstart"]).resolved, tmp_path)
    nothing: Any = None
    for part, found in ((range(1, 61), 1), (range(61, 71), 0), (range(71, 91), 0)):
        shown: Any = Shown()
        callback = DisplayCallback(facts, StageContext(tmp_path), shown)
        at_first: Any = SimpleNamespace(is_world_process_zero=True, global_step=0, max_steps=90)
        callback.on_train_begin(nothing, at_first, nothing)
        for step in part:
            figures = {"reward": 0.3 + 0.002 * step, "reward_std": 0.4, "frac_reward_zero_std": 0.1, "entropy": 0.6}
            logs = {"loss": 0.01, "learning_rate": 1e-4, "grad_norm": 0.3, "kl": 0.9 * (step > 30), **figures}
            with (tmp_path / "metrics.jsonl").open("a") as file:
                file.write(json.dumps({"step": step, **logs}) + "\n")
            for main in (False, True):
                state: Any = SimpleNamespace(global_step=step, max_steps=90, is_world_process_zero=main)
                callback.on_log(nothing, state, nothing, logs=logs)
        assert shown.rows == list(part)
        assert len(shown.findings) == found and all("(step 3" in line for line in shown.findings)
