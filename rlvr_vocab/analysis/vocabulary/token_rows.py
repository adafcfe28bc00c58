"""Rows of embedding and head of a model folder, read as they are asked for and never all at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from rlvr_vocab.analysis.vocabulary.story import Side
from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.peft.adapter_base import ADAPTER_WEIGHTS, ROWS_KEY, find_base, is_adapter
from rlvr_vocab.vocab.read_as_data import refuse_pickled

_INDEX, _WHOLE = "model.safetensors.index.json", "model.safetensors"
# The modules of a model that score tokens, by the last part of their name; a table of another name is the embedding.
_HEADS = ("lm_head", "embed_out", "output", "output_layer", "head")
_NO_TABLES = ("wpe", "position_embeddings", "embed_positions")


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
            return _with_trained_rows(token_tables(find_base(folder), rows), folder / ADAPTER_WEIGHTS)
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


def _with_trained_rows(tables: dict[Side, TokenRows], weights: Path) -> dict[Side, TokenRows]:
    """The tables of the base with the rows that trained beside the adapter, if any did."""
    with safe_open(weights, framework="pt") as file:
        names = [name for name in file.keys() if name.endswith(f".{ROWS_KEY}")]  # noqa: SIM118  # not a mapping
        trained = {"output" if _module(name) in _HEADS else "input": file.get_tensor(name) for name in names}
    return {
        side: TokenRows(each.table, trained.get("input" if side == "both" else side)) for side, each in tables.items()
    }
