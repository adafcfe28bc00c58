"""The model folders of a run, the step that each has reached, and the rows of embedding and head in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from rlvr_vocab.analysis.vocabulary.results import Side
from rlvr_vocab.analysis.vocabulary.sampled_tokens import evenly_spread
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.completions import CompletionFiles
from rlvr_vocab.record.files import COMPLETIONS, FINAL_ADAPTER, FINAL_MODEL
from rlvr_vocab.record.metrics import RunRecord, is_number
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.peft.adapter_base import ADAPTER_WEIGHTS, DIFFERENCE_KEY, ROWS_KEY, find_base, is_adapter
from rlvr_vocab.vocab.read_as_data import refuse_pickled

_INDEX, _WHOLE = "model.safetensors.index.json", "model.safetensors"
# The modules of a model that score tokens, by the last part of their name; a table of another name is the embedding.
_HEADS = ("lm_head", "embed_out", "output", "output_layer", "head")
_NO_TABLES = ("wpe", "position_embeddings", "embed_positions")
MOST_CHECKPOINTS = 12
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
_STAGE = re.compile(r"\d+_(.+)")


class ModelFolder(NamedTuple):
    """A checkpoint, or the final model; `step` is of the whole run."""

    step: int
    name: str
    path: Path


def model_folders(record: RunRecord) -> tuple[list[ModelFolder], list[str]]:
    """Checkpoints in the order of their steps and the final model last, at most `MOST_CHECKPOINTS`, and notes."""
    notes: list[str] = []
    there = sorted([*_own(record.folder), *_of_stages(record, notes)], key=lambda each: each.step)
    final = next((path for name in (FINAL_MODEL, FINAL_ADAPTER) if (path := record.folder / name).is_dir()), None)
    if final is not None:
        steps = _steps_taken(record, there)
        there = [each for each in there if each.step < steps] + [ModelFolder(steps, final.name, final)]
    if len(there) > MOST_CHECKPOINTS:
        notes.append(f"Of {len(there)} checkpoints {MOST_CHECKPOINTS} were read, evenly spread.")
        there = evenly_spread(there, MOST_CHECKPOINTS)
    return there, notes


def _own(folder: Path) -> Iterator[ModelFolder]:
    for path in folder.glob("checkpoint-*"):
        if number := _CHECKPOINT.fullmatch(path.name):
            yield ModelFolder(int(number[1]), path.name, path)


def _of_stages(record: RunRecord, notes: list[str]) -> Iterator[ModelFolder]:
    """The checkpoints of the stages, whose folder names count the steps of the stage alone."""
    for folder in sorted((record.folder / "stages").glob("*_*")):
        name = _STAGE.fullmatch(folder.name)
        own = list(_own(folder))
        if name is None or not own:
            continue
        first = _first_step(record, name[1])
        if first is None:
            notes.append(f"No logged step says where stage {name[1]} begins: its checkpoints were left out.")
            continue
        for each in own:
            yield ModelFolder(first + each.step, f"{folder.name}/{each.name}", each.path)


def _first_step(record: RunRecord, stage: str) -> int | None:
    """The steps before a stage, from any row of it."""
    rows = (row for row in record.rows if row.get("stage") == stage and is_number(row.get("stage_step")))
    row = next(rows, None)
    return None if row is None else int(row["step"]) - int(row["stage_step"])


def _steps_taken(record: RunRecord, checkpoints: list[ModelFolder]) -> int:
    """The number of steps that the run took, by what it has left."""
    summary = record.summary or {}
    if is_number(summary.get("steps")):
        return int(summary["steps"])
    logged = [int(row["step"]) for row in record.rows[-1:]]
    sampled = CompletionFiles(record.folder / COMPLETIONS).steps
    return max([0, *logged, *sampled, *(each.step for each in checkpoints)])


@dataclass(frozen=True)
class TokenRows:
    """One table with a row per token.

    Attributes:
        table: `(rows, H)` in the type it is stored in, mapped from the file, so that only what is used is read.
        trained: rows from `first` on that lie beside an adapter and stand for those of the table; None without.
    """

    table: torch.Tensor
    trained: torch.Tensor | None = None

    @property
    def first(self) -> int:
        return self.table.size(0) - (0 if self.trained is None else self.trained.size(0))

    def rows(self, ids: np.ndarray) -> torch.Tensor:
        """`(ids, H)` float32."""
        wanted = torch.from_numpy(np.asarray(ids, dtype=np.int64))
        found = self.table[wanted].float()
        if self.trained is not None:
            mine = wanted >= self.first
            found[mine] = self.trained[wanted[mine] - self.first].float()
        return found


def token_tables(folder: Path, rows: int) -> dict[Side, TokenRows]:
    """Both tables of a model or adapter folder, or the one that a tied model has.

    Args:
        rows: how many rows they must have.

    Raises:
        UserError: there is none with so many rows, or it cannot be read.
    """
    try:
        if is_adapter(folder):
            return _with_trained_rows(token_tables(find_base(folder), rows), folder)
        refuse_pickled(folder, str(folder))
        return _by_side(dict(_tables(folder, rows)), folder, rows)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"the weights of {folder} cannot be read: {' '.join(str(error).split())}") from error


def _by_side(tables: dict[str, torch.Tensor], folder: Path, rows: int) -> dict[Side, TokenRows]:
    heads = [name for name in tables if _module(name) in _HEADS]
    embeddings = [name for name in tables if name not in heads]
    if len(embeddings) != 1 or len(heads) > 1:
        raise UserError(f"{folder} has no one embedding with {rows:,} rows: {', '.join(sorted(tables)) or 'none has'}")
    embedding = TokenRows(tables[embeddings[0]])
    return {"input": embedding, "output": TokenRows(tables[heads[0]])} if heads else {"both": embedding}


def _tables(folder: Path, rows: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor with a row per token that belongs to no layer."""
    for path in _files(folder):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  # not a mapping
                if _may_be_a_table(name) and [*file.get_slice(name).get_shape()[:1]] == [rows]:
                    tensor = file.get_tensor(name)
                    if tensor.dim() == 2:
                        yield name, tensor


def _may_be_a_table(name: str) -> bool:
    numbered = any(part.isdigit() for part in name.split("."))
    return name.endswith(".weight") and not numbered and _module(name) not in _NO_TABLES


def _module(name: str) -> str:
    return name.split(".")[-2]


def _files(folder: Path) -> list[Path]:
    if (folder / _INDEX).is_file():
        weight_map = json.loads((folder / _INDEX).read_text(encoding="utf-8"))["weight_map"]
        # Only names: an index is no reason to open a file outside the folder.
        return [folder / Path(name).name for name in sorted(set(weight_map.values()))]
    if not (folder / _WHOLE).is_file():
        raise UserError(f"{folder} holds no {_WHOLE}")
    return [folder / _WHOLE]


def _with_trained_rows(tables: dict[Side, TokenRows], folder: Path) -> dict[Side, TokenRows]:
    """The tables of the base with the rows, or their differences from their sources, that trained beside an adapter."""
    with safe_open(folder / ADAPTER_WEIGHTS, framework="pt") as file:
        names = list(file.keys())
        rows = {_side(name, 2): file.get_tensor(name) for name in names if name.endswith(f".{ROWS_KEY}")}
        factors = {(_side(name, 4), name[-1]): file.get_tensor(name) for name in names if f".{DIFFERENCE_KEY}." in name}
    if factors:
        sources = torch.tensor(VocabLayout.load(folder).source_ids)
        for side, each in tables.items():
            own: Side = "input" if side == "both" else side
            rows[own] = each.table[sources].float() + factors[own, "B"] @ factors[own, "A"]
    return {side: TokenRows(each.table, rows.get("input" if side == "both" else side)) for side, each in tables.items()}


def _side(name: str, place: int) -> Side:
    """Of a tensor by the name of its module, so many words from the end."""
    return "output" if name.split(".")[-place] in _HEADS else "input"
