"""Completions of a logged step on disk, one Parquet file a step."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from accelerate.utils import gather_object
from transformers import PreTrainedTokenizerBase

from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.record.results import KINDS
from rlvr_vocab.rewards.guard import REASON
from rlvr_vocab.rewards.reward import turn_text
from rlvr_vocab.text import writable

# The rows of a generation, by column; a reward is NaN where its function gave none.
Rollouts = dict[str, list[Any]]


def gather_rollouts(trainer: Any, inputs: Sequence[Mapping[str, Any]], batch: Mapping[str, Any]) -> Rollouts:
    """The completions of a scored generation in all processes; `inputs` and `batch` are this process's."""

    def kept(values: torch.Tensor, of: str = "completion") -> list[list[Any]]:
        rows = zip(values, batch[f"{of}_mask"].bool(), strict=True)
        return gather_object([row[counted].tolist() for row, counted in rows])

    def cells(name: str) -> list[str]:
        return gather_object([cell_text(row.get(name)) or "" for row in inputs])

    gold = "solution" if "solution" in inputs[0] else "answer"  # as scripts name it
    solutions, logs = cells(gold), trainer.logged_completions

    def newest(values: Any) -> list[Any]:
        return list(values)[-len(solutions) :]

    rewards = {name: newest(values) for name, values in logs["rewards"].items()}
    weights = dict(zip(trainer.reward_func_names, trainer.reward_weights.tolist(), strict=True))
    scores = [dict(zip(rewards, row, strict=True)) for row in zip(*rewards.values(), strict=True)]
    reasons = {name: newest(logs["extra"].get(f"{REASON}{name}", ())) for name in weights}
    rows: Rollouts = {
        "completion": [turn_text(turn) for turn in newest(logs["completion"])],
        "prompt_ids": kept(batch["prompt_ids"], of="prompt"),
        "completion_ids": kept(batch["completion_ids"]),
        "solution": solutions,
        **{name: cells(name) for name in KINDS if name in inputs[0]},
        "advantage": newest(logs["advantages"]),
        "reward": [sum(weights[name] * x for name, x in row.items() if not math.isnan(x)) for row in scores],
        **{f"reward/{name}": values for name, values in rewards.items()},
        **{f"reason/{name}": values for name, values in reasons.items() if any(values)},
    }
    if "sampling_per_token_logps" in batch:
        rows["sampling_logps"] = kept(batch["sampling_per_token_logps"])
    if "tool_mask" in batch:
        turns = newest(logs["completion"])
        rows["messages"] = [writable(json.dumps(turn, ensure_ascii=False, default=str)) for turn in turns]
        rows["segments"] = [[len(list(run)) for _, run in groupby(mask)] for mask in kept(batch["sampled_mask"])]
    return rows


def write_completions(rows: Rollouts, step: int, tokenizer: PreTrainedTokenizerBase, folder: Path) -> Path:
    """Write `completions/step_00001.parquet`; the prompt is the text that the model saw, with its template."""
    folder.mkdir(parents=True, exist_ok=True)
    path, partial = folder / f"step_{step:05d}.parquet", folder / ".step.partial"
    prompts = tokenizer.batch_decode(rows["prompt_ids"])
    columns = {"step": [step] * len(prompts), "prompt": prompts, **rows}
    # Not by pandas, which resets the filters of warnings: those of libraries would come back at each step.
    pq.write_table(pa.table({name: pa.array(values, from_pandas=True) for name, values in columns.items()}), partial)
    return partial.replace(path)  # readers of a running run find whole files


def remove_step_files_after(step: int, run_folder: Path) -> None:
    """Remove completions and held-out results of later steps, which the run takes again."""
    completions = (run_folder / "completions").glob("*_*.parquet")  # ours, and those of training.log_completions
    for path in [*completions, *(run_folder / "evaluation").glob("step_*.jsonl")]:
        name, _, number = path.stem.partition("_")
        if name in ("step", "completions") and number.isdigit() and int(number) > step:
            path.unlink()
