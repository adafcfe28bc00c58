"""Sampled tokens of a run, step by step, from its files of completions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from rlvr_vocab.analysis.vocabulary.story import Kind
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import THINKING, scored_regions

MOST_STEPS = 200
_COLUMN: dict[Kind, str] = {"entropy": "sampling_entropies", "surprisal": "sampling_logps"}
_NO_TOKEN = -1
# Positions whose regions are found at once: some tens of megabytes.
_AT_ONCE = 2**20


@dataclass(frozen=True)
class SampledStep:
    """The sampled tokens of a step one after another, `(tokens,)` each.

    Attributes:
        before: surface id of what stands before a token.
        nats: entropy or surprisal; not finite where there is none.
    """

    step: int
    ids: np.ndarray
    before: np.ndarray
    thinking: np.ndarray
    nats: np.ndarray


def evenly_spread(files: Sequence[Path], most: int = MOST_STEPS) -> list[Path]:
    """At most so many files, the first and the last among them."""
    if len(files) <= most:
        return list(files)
    return [files[at] for at in np.linspace(0, len(files) - 1, most).round().astype(int)]


def step_of(file: Path) -> int | None:
    number = re.fullmatch(r"step_(\d+)", file.stem)
    return int(number[1]) if number else None


def recorded_kind(files: Sequence[Path]) -> Kind | None:
    """Entropies where any file has them, else surprisals, else nothing."""
    names = {name for file in files for name in _column_names(file)}
    return next((kind for kind, column in _COLUMN.items() if column in names), None)


def read_step(file: Path, step: int, kind: Kind | None, layout: VocabLayout, surface: np.ndarray) -> SampledStep:
    """The tokens of one file.

    Args:
        surface: the `surface_ids` of the layout.

    Raises:
        ValueError: it is no file of completions of a model with this layout; the message says why.
    """
    columns = ["prompt_ids", "completion_ids"]
    column = _COLUMN[kind] if kind is not None and _COLUMN[kind] in _column_names(file) else None
    try:
        table = pq.read_table(file, columns=columns if column is None else [*columns, column])
        prompts, completions = (_Lists.of(table, name) for name in columns)
        values = None if column is None else _Lists.of(table, column)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise ValueError(f"cannot be read: {' '.join(str(error).split())}") from error
    for lists in (prompts, completions):
        if lists.values.size and not 0 <= lists.values.min() <= lists.values.max() < layout.rows:
            raise ValueError(f"holds ids outside the {layout.rows:,} rows of the model")
    nats = _aligned(values, completions.lengths)
    regions, before = _in_context(prompts, completions, layout)
    before = np.where(before == _NO_TOKEN, before, surface[before])
    surprisal = kind == "surprisal"
    return SampledStep(step, completions.values, before, regions == THINKING, -nats if surprisal else nats)


def surface_ids(layout: VocabLayout) -> np.ndarray:
    """For each id the standard token that it reads as, `(rows,)`."""
    return np.concatenate([np.arange(layout.standard_size), np.asarray(layout.source_ids, dtype=np.int64)])


@dataclass(frozen=True)
class _Lists:
    """A column of lists: all their values one after another, and how many each row has."""

    values: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, table: pa.Table, name: str) -> _Lists:
        column = table.column(name)
        if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
            raise pa.ArrowInvalid(f"{name} holds no lists")
        values = pc.list_flatten(column)
        if pa.types.is_integer(values.type):
            numbers = values.fill_null(_NO_TOKEN).to_numpy().astype(np.int64)
        else:
            numbers = values.cast(pa.float64()).to_numpy().astype(np.float64)
        return cls(numbers, pc.list_value_length(column).fill_null(0).to_numpy().astype(np.int64))

    def rows(self) -> list[np.ndarray]:
        return np.split(self.values, np.cumsum(self.lengths)[:-1]) if len(self.lengths) else []


def _column_names(file: Path) -> set[str]:
    try:
        return set(pq.read_schema(file).names)
    except (pa.ArrowException, OSError):
        return set()  # reading it says why


def _aligned(values: _Lists | None, lengths: np.ndarray) -> np.ndarray:
    """One value for each token; NaN in a row that has not as many values as tokens."""
    if values is None:
        return np.full(int(lengths.sum()), np.nan)
    rows = [
        row if len(row) == length else np.full(length, np.nan)
        for row, length in zip(values.rows(), lengths, strict=True)
    ]
    return np.concatenate(rows) if rows else np.empty(0)


def _in_context(prompts: _Lists, completions: _Lists, layout: VocabLayout) -> tuple[np.ndarray, np.ndarray]:
    """Region of each sampled token, and the id of what stands before it."""
    regions, before = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for sequences, starts in _blocks(prompts.rows(), completions.rows()):
        found = scored_regions(torch.from_numpy(sequences), layout).numpy()
        for row, (start, end) in enumerate(starts):
            regions.append(found[row, start:end])
            earlier = sequences[row, max(start - 1, 0) : max(end - 1, 0)]
            before.append(earlier if start else np.concatenate([[_NO_TOKEN], earlier])[: end - start])
    return np.concatenate(regions), np.concatenate(before)


def _blocks(
    prompts: list[np.ndarray], completions: list[np.ndarray]
) -> Iterator[tuple[np.ndarray, list[tuple[int, int]]]]:
    """Some sequences at a time, padded, with the places of their sampled tokens."""
    longest = max((len(prompt) + len(answer) for prompt, answer in zip(prompts, completions, strict=True)), default=0)
    height = max(1, _AT_ONCE // max(longest, 1))
    for first in range(0, len(prompts), height):
        rows = list(zip(prompts[first : first + height], completions[first : first + height], strict=True))
        sequences = np.full((len(rows), longest), _NO_TOKEN, dtype=np.int64)
        places = []
        for row, (prompt, answer) in enumerate(rows):
            end = len(prompt) + len(answer)
            sequences[row, : len(prompt)], sequences[row, len(prompt) : end] = prompt, answer
            places.append((len(prompt), end))
        yield sequences, places
