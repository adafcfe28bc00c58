"""Completions of a logged step on disk, one Parquet file a step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class CompletionRows:
    """One generation batch, a row per completion; `rewards` by function, NaN where a function gave none."""

    prompt_ids: Sequence[list[int]]
    completion_ids: Sequence[list[int]]
    completion: Sequence[str]
    solution: Sequence[str]
    advantage: Sequence[float]
    rewards: Mapping[str, Sequence[float]]
    weights: Mapping[str, float]
    sampling_logps: Sequence[list[float]] | None = None

    def total_rewards(self) -> list[float]:
        """Weighted sum over the functions that scored a row."""
        return [
            sum(
                self.weights[name] * values[row] for name, values in self.rewards.items() if not math.isnan(values[row])
            )
            for row in range(len(self.completion))
        ]


def remove_completions_after(step: int, folder: Path) -> None:
    """Remove the files of later steps: a run that goes on from `step` writes its own."""
    for path in folder.glob("*_*.parquet"):  # ours, and those of training.log_completions
        name, _, number = path.stem.partition("_")
        if name in ("step", "completions") and number.isdigit() and int(number) > step:
            path.unlink()


def write_completions(rows: CompletionRows, step: int, tokenizer: PreTrainedTokenizerBase, folder: Path) -> Path:
    """Write `completions/step_00001.parquet`; the prompt is the text that the model saw, template and all."""
    columns = {
        "step": step,
        "prompt": tokenizer.batch_decode(list(rows.prompt_ids)),
        "completion": list(rows.completion),
        "prompt_ids": list(rows.prompt_ids),
        "completion_ids": list(rows.completion_ids),
        "solution": list(rows.solution),
        "advantage": list(rows.advantage),
        "reward": rows.total_rewards(),
        **{f"reward/{name}": list(values) for name, values in rows.rewards.items()},
    }
    if rows.sampling_logps is not None:
        columns["sampling_logps"] = list(rows.sampling_logps)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step_{step:05d}.parquet"
    pd.DataFrame(columns).to_parquet(path, index=False)
    return path
