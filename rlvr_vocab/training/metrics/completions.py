"""Completions of a logged step on disk, one Parquet file a step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from accelerate.utils import gather_object
from transformers import PreTrainedTokenizerBase

from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.record.results import KINDS
from rlvr_vocab.rewards.guard import REASON
from rlvr_vocab.rewards.reward import turn_text


@dataclass(frozen=True)
class CompletionRows:
    """One generation batch, a row per completion; `rewards` by function, NaN where a function gave none.

    Attributes:
        sampling_logps: of each sampled token; None where the sampler has none.
        reasons: the reason of each score, by function, for those that give one.
        kinds: the columns `KINDS` of each problem.
    """

    prompt_ids: Sequence[list[int]]
    completion_ids: Sequence[list[int]]
    completion: Sequence[str]
    solution: Sequence[str]
    advantage: Sequence[float]
    rewards: Mapping[str, Sequence[float]]
    weights: Mapping[str, float]
    sampling_logps: Sequence[list[float]] | None = None
    reasons: Mapping[str, Sequence[str]] = field(default_factory=dict)
    kinds: Mapping[str, Sequence[str]] = field(default_factory=dict)


def gather_rollouts(trainer: Any, inputs: Sequence[Mapping[str, Any]], batch: Mapping[str, Any]) -> CompletionRows:
    """The completions of a scored generation in all processes; `inputs` and `batch` are this process's."""
    masks = batch["completion_mask"].bool()

    def kept(name: str, masks_BT: Any) -> list[list[Any]]:
        return [row[mask].tolist() for row, mask in zip(batch[name], masks_BT, strict=True)]

    local_rows: dict[str, list[Any]] = {
        "prompt_ids": kept("prompt_ids", batch["prompt_mask"].bool()),
        "completion_ids": kept("completion_ids", masks),
        "solution": [cell_text(row.get("solution")) or "" for row in inputs],
    }
    if "sampling_per_token_logps" in batch:
        local_rows["sampling_logps"] = kept("sampling_per_token_logps", masks)
    columns = {name: gather_object(values) for name, values in local_rows.items()}
    kinds = {name: [cell_text(row[name]) or "" for row in inputs] for name in KINDS if name in inputs[0]}
    logs, names, num_rows = trainer.logged_completions, trainer.reward_func_names, len(columns["solution"])
    reasons = {name: logs["extra"].get(f"{REASON}{name}", ()) for name in names}
    return CompletionRows(
        **columns,
        completion=[turn_text(turn) for turn in list(logs["completion"])[-num_rows:]],
        advantage=list(logs["advantages"])[-num_rows:],
        rewards={name: list(values)[-num_rows:] for name, values in logs["rewards"].items()},
        reasons={name: list(given)[-num_rows:] for name, given in reasons.items() if any(given)},
        weights=dict(zip(names, trainer.reward_weights.tolist(), strict=True)),
        kinds={name: gather_object(values) for name, values in kinds.items()},
    )


def write_completions(rows: CompletionRows, step: int, tokenizer: PreTrainedTokenizerBase, folder: Path) -> Path:
    """Write `completions/step_00001.parquet`; the prompt is the text that the model saw, with its template."""
    scores = [dict(zip(rows.rewards, row, strict=True)) for row in zip(*rows.rewards.values(), strict=True)]
    columns = {
        "step": step,
        "prompt": tokenizer.batch_decode(list(rows.prompt_ids)),
        "completion": list(rows.completion),
        "prompt_ids": list(rows.prompt_ids),
        "completion_ids": list(rows.completion_ids),
        "solution": list(rows.solution),
        **{name: list(values) for name, values in rows.kinds.items()},
        "advantage": list(rows.advantage),
        "reward": [sum(rows.weights[name] * x for name, x in row.items() if not math.isnan(x)) for row in scores],
        **{f"reward/{name}": list(values) for name, values in rows.rewards.items()},
        **{f"reason/{name}": list(values) for name, values in rows.reasons.items()},
        **({} if rows.sampling_logps is None else {"sampling_logps": list(rows.sampling_logps)}),
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step_{step:05d}.parquet"
    partial = folder / ".step.partial"  # readers of a running run find whole files
    pd.DataFrame(columns).to_parquet(partial, index=False)
    return partial.replace(path)


def remove_step_files_after(step: int, run_folder: Path) -> None:
    """Remove completions and held-out results of later steps, which the run takes again."""
    completions = (run_folder / "completions").glob("*_*.parquet")  # ours, and those of training.log_completions
    for path in [*completions, *(run_folder / "evaluation").glob("step_*.jsonl")]:
        name, _, number = path.stem.partition("_")
        if name in ("step", "completions") and number.isdigit() and int(number) > step:
            path.unlink()
