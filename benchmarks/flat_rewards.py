"""How often the doctor calls a reward flat: that of a healthy run, in smaller batches, and one that is pure chance.

    python benchmarks/flat_rewards.py out/quickstart_reasoning_full_seed42

draws groups and completions of each step anew from what the run has written, so that the reward rises as it did and
its noise is that of a smaller batch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlvr_vocab.analysis.doctor.diagnose import Doctor
from rlvr_vocab.record.files import COMPLETIONS, step_files
from rlvr_vocab.record.metrics import RewardFact, RunFacts
from rlvr_vocab.runs.folder import run_record

SERIES = 60
SHAPES = ((16, 8), (8, 8), (8, 4), (4, 4))  # groups, completions in each
STEPS = (40, 60, 100, 200)


def main(folder: Path) -> None:
    facts, luck = run_record(folder).facts, np.random.default_rng(0)
    size = facts.num_generations
    files = [pd.read_parquet(file, columns=["reward"]) for file in step_files(folder / COMPLETIONS)]
    rewards = [file["reward"].to_numpy().reshape(-1, size) for file in files]
    print(f"called flat, of {SERIES} series, within {', '.join(map(str, STEPS))} steps")
    for groups, generations in SHAPES:
        if groups > len(rewards[0]) or generations > size:
            continue
        judged_as = replace(facts, num_generations=generations, rewards=(RewardFact("accuracy", 1.0, False),))
        healthy = [[drawn(step, groups, generations, luck) for step in rewards] for _ in range(SERIES)]
        chance = [[luck.random((groups, generations)) for _ in range(STEPS[-1])] for _ in range(SERIES)]
        for name, series in (("of the run", healthy), ("of chance", chance)):
            found = [first_flat(each, judged_as) for each in series]
            shares = [sum(at is not None and at <= steps for at in found) / SERIES for steps in STEPS]
            print(f"{groups:>3} × {generations}  {name:<10}", "  ".join(f"{share:4.0%}" for share in shares))


def drawn(step: Any, groups: int, generations: int, luck: np.random.Generator) -> Any:
    chosen = step[luck.choice(len(step), groups, replace=False)]
    return chosen[:, luck.choice(step.shape[1], generations, replace=False)]


def first_flat(series: Sequence[Any], facts: RunFacts) -> int | None:
    """The step at which a run with these rewards, by group, is called flat."""
    doctor = Doctor(facts)
    for step, rewards in enumerate(series, start=1):
        row = {
            "step": step,
            "loss": 0.0,
            "learning_rate": facts.learning_rate,
            "reward": float(rewards.mean()),
            "reward_std": float(rewards.std(ddof=1)),
            "groups/reward_std": float(rewards.std(axis=1, ddof=1).mean()),
        }
        if any(finding.name == "reward_flat" for finding in doctor.look(row)):
            return step
    return None


if __name__ == "__main__":
    main(Path(sys.argv[1]))
