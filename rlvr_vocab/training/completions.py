"""Completions of a logged step on disk, one Parquet file a step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class CompletionRows:
    """One generation batch, a row per completion; `rewards` by function, NaN where a function gave none.

    Attributes:
        sampling_logps: of each sampled token, where the sampler tells them.
        sampling_entropies: in nats, of the distribution that each token was drawn from; a server tells none.
        reasons: why each row was scored as it was, by function, for those that say so.
    """

    prompt_ids: Sequence[list[int]]
    completion_ids: Sequence[list[int]]
    completion: Sequence[str]
    solution: Sequence[str]
    advantage: Sequence[float]
    rewards: Mapping[str, Sequence[float]]
    weights: Mapping[str, float]
    sampling_logps: Sequence[list[float]] | None = None
    sampling_entropies: Sequence[list[float]] | None = None
    reasons: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def total_rewards(self) -> list[float]:
        """Weighted sum over the functions that scored a row."""
        return [
            sum(
                self.weights[name] * values[row] for name, values in self.rewards.items() if not math.isnan(values[row])
            )
            for row in range(len(self.completion))
        ]


def remove_step_files_after(step: int, run_folder: Path) -> None:
    """Remove completions and held-out results of later steps: a run that goes on from `step` writes its own."""
    completions = (run_folder / "completions").glob("*_*.parquet")  # ours, and those of training.log_completions
    for path in [*completions, *(run_folder / "evaluation").glob("step_*.jsonl")]:
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
        **{f"reason/{name}": list(values) for name, values in rows.reasons.items()},
    }
    for name, figures in (("sampling_logps", rows.sampling_logps), ("sampling_entropies", rows.sampling_entropies)):
        if figures is not None:
            columns[name] = list(figures)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step_{step:05d}.parquet"
    partial = path.with_name(f".{path.name}.partial")  # whoever looks at a run that goes on finds whole files
    try:
        pd.DataFrame(columns).to_parquet(partial, index=False)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path
