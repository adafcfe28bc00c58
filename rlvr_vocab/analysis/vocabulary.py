"""Use and drift of the copies of a run: a chart, a table of the most used ones, `vocabulary.csv`.

A copy is a reasoning token; `k` is its place among them, so its id is `standard_size + k`.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from rlvr_vocab.analysis.charts import Chart, Line, line_chart
from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_write
from rlvr_vocab.record.completions import CompletionFiles
from rlvr_vocab.record.files import COMPLETIONS, FINAL_ADAPTER, FINAL_MODEL, INITIAL_MODEL
from rlvr_vocab.text import pluralize, visible_text
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout
from rlvr_vocab.vocab.marking import TOKENIZER_FILE, read_tokenizer
from rlvr_vocab.vocab.policy import open_copies
from rlvr_vocab.vocab.regions import THINKING, scored_regions
from rlvr_vocab.vocab.weights import ADAPTER_WEIGHTS, DIFFERENCE_KEY, ROWS_KEY, find_base, is_adapter, refuse_pickled

VOCABULARY = "vocabulary.csv"
MOST_STEPS = 200
MOST_MOVED = 1000  # copies that have a row in the CSV although they were never sampled
_ROWS_AT_ONCE = 1024  # of each table, in float32
# The modules of a model that score tokens, by the last part of their name; a table of another name is the embedding.
_HEADS = ("lm_head", "embed_out", "output", "output_layer", "head")
_NO_TABLES = ("wpe", "position_embeddings", "embed_positions")
_INDEX, _WEIGHTS = "model.safetensors.index.json", "model.safetensors"

Side = Literal["both", "input", "output"]  # a tied model has one table for both sides
_SIDES: dict[Side, str] = {"both": "embedding and head", "input": "embedding", "output": "head"}
Item = TypeVar("Item")


class UsePoint(NamedTuple):
    """Tokens sampled while thinking at one step, how many of them are copies, and how many different copies."""

    step: int
    thinking: int
    copies: int
    distinct: int


@dataclass(frozen=True, eq=False)
class VocabularyAnalysis:
    """Use and drift of the copies of a run.

    Attributes:
        use: by step; `sampled`: `(rows,)` int64, how often each id was sampled while thinking.
        drift: by side, `(2, copies)`: distance (1 - cosine) of each copy's row in the final model from its source's
            there, and from its own before training; NaN for copies of control ids, and rows of zeros.
        notes: sentences on what is missing or was left out, and why.
    """

    folder: Path
    layout: VocabLayout
    tokenizer: Tokenizer | None
    use: Sequence[UsePoint]
    sampled: np.ndarray
    drift: Mapping[Side, np.ndarray]
    notes: Sequence[str]


def analyse_vocabulary(run: Path) -> VocabularyAnalysis | None:
    """Read completions and models of a run, finished or not; None for a baseline, or without an initial model."""
    initial = run / INITIAL_MODEL
    if not (initial / LAYOUT_FILE).is_file():
        return None
    layout, notes = VocabLayout.load(initial), list[str]()
    if not layout.size:
        return None
    use, sampled = read_use(CompletionFiles(run / COMPLETIONS), layout, notes)
    drift = _read_drift(run, layout, notes)
    file = initial / TOKENIZER_FILE
    tokenizer = read_tokenizer(file) if file.is_file() else None
    return VocabularyAnalysis(run, layout, tokenizer, use, sampled, drift, notes)


def evenly_spread(items: Sequence[Item], most: int) -> list[Item]:
    """At most so many of the items, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[at] for at in np.linspace(0, len(items) - 1, most).round().astype(int)]


def read_use(files: CompletionFiles, layout: VocabLayout, notes: list[str]) -> tuple[list[UsePoint], np.ndarray]:
    """Count the tokens that were sampled while thinking: by step, and `(rows,)` int64 by id over all steps read."""
    steps = evenly_spread(files.steps, MOST_STEPS)
    if len(steps) < len(files.steps):
        notes.append(f"Of {len(files.steps):,} steps with completions {len(steps)} were read, evenly spread.")
    points, sampled = list[UsePoint](), np.zeros(layout.rows, np.int64)
    for step in steps:
        try:
            thought = _thinking_ids(files.table(step, ["prompt_ids", "completion_ids"]), layout)
        except (UserError, KeyError) as error:  # unreadable, or without ids
            notes.append(f"Step {step} was left out: {error}.")
            continue
        copies = thought[thought >= layout.standard_size]
        points.append(UsePoint(step, len(thought), len(copies), len(np.unique(copies))))
        sampled += np.bincount(thought, minlength=layout.rows)
    if not points:
        notes.append("No completions can be read: the use of the copies is unknown.")
    return points, sampled


def _thinking_ids(table: pa.Table, layout: VocabLayout) -> np.ndarray:
    """The sampled ids of a step that were chosen while thinking."""
    pairs = [*zip(_lists(table["prompt_ids"]), _lists(table["completion_ids"]), strict=True)]
    ids = np.full((len(pairs), max((len(prompt) + len(answer) for prompt, answer in pairs), default=0)), -1)
    sampled = np.zeros(ids.shape, dtype=bool)
    for row, (prompt, answer) in enumerate(pairs):
        end = len(prompt) + len(answer)
        ids[row, :end] = np.concatenate([prompt, answer])
        sampled[row, len(prompt) : end] = True
    return ids[sampled & (scored_regions(torch.from_numpy(ids), layout).numpy() == THINKING)]


def _lists(column: pa.ChunkedArray) -> list[np.ndarray]:
    lengths, values = pc.list_value_length(column).to_numpy(), pc.list_flatten(column).to_numpy()
    return np.split(values, np.cumsum(lengths)[:-1])


def _read_drift(run: Path, layout: VocabLayout, notes: list[str]) -> dict[Side, np.ndarray]:
    final = next((path for name in (FINAL_MODEL, FINAL_ADAPTER) if (path := run / name).is_dir()), None)
    if final is None:
        notes.append("The run has no final model yet: the drift of the copies is unknown.")
        return {}
    try:
        start, now = (token_tables(folder, layout.rows) for folder in (run / INITIAL_MODEL, final))
    except UserError as error:
        notes.append(f"The drift of the copies is unknown: {error}.")
        return {}
    if "both" in start:
        start = {**start, **dict.fromkeys(("input", "output"), start["both"])}
    elif "both" in now:  # merging may leave one table of two
        now = dict.fromkeys(("input", "output"), now["both"])
    open_ks = (open_copies(layout)[0] - layout.standard_size).numpy()
    drift = {side: np.full((2, layout.size), np.nan) for side in now}
    for side, table in now.items():
        drift[side][:, open_ks] = row_drift(table, start[side], layout, open_ks)
    if broken := max(int((~np.isfinite(each[0, open_ks])).sum()) for each in drift.values()):
        notes.append(f"The rows of {pluralize(broken, 'copy', 'copies')} are zero or not finite at the end: left out.")
    return drift


def row_drift(now: TokenRows, start: TokenRows, layout: VocabLayout, ks: np.ndarray) -> np.ndarray:
    """`(2, ks)`: 1 - cosine of copies to their sources, and to themselves at the start, block by block.

    It is half the squared distance of the unit vectors: 1 minus a rounded cosine near 1 would be noise.
    """
    sources, found = np.asarray(layout.source_ids, dtype=np.int64), np.empty((2, len(ks)))
    for first in range(0, len(ks), _ROWS_AT_ONCE):
        block = ks[first : first + _ROWS_AT_ONCE]
        ids = block + layout.standard_size
        rows = now.rows(ids), now.rows(sources[block]), start.rows(ids)
        copy, *others = (each / each.norm(dim=1, keepdim=True) for each in rows)
        distances = [0.5 * (copy - other).square_().sum(dim=1) for other in others]
        found[:, first : first + len(block)] = torch.stack(distances).numpy()
    return found


@dataclass(frozen=True)
class TokenRows:
    """One table with a row per token.

    Attributes:
        table: `(rows, H)` in the type it is stored in, mapped from the file, so that only what is used is read.
        trained: the last rows as they lie beside an adapter, in place of the table's; None without.
    """

    table: torch.Tensor
    trained: torch.Tensor | None = None

    def rows(self, ids: np.ndarray | range) -> torch.Tensor:
        """`(ids, H)` float32."""
        wanted = torch.from_numpy(np.asarray(ids, dtype=np.int64))
        found = self.table[wanted].float()
        if self.trained is not None:
            first = self.table.size(0) - self.trained.size(0)
            own = wanted >= first
            found[own] = self.trained[wanted[own] - first].float()
        return found


def token_tables(folder: Path, rows: int) -> dict[Side, TokenRows]:
    """The tables with so many rows of a model or adapter folder, or the one that a tied model has.

    Raises:
        UserError: there is none, or it cannot be read.
    """
    try:
        if is_adapter(folder):
            return _with_trained_rows(token_tables(find_base(folder), rows), folder)
        refuse_pickled(folder, str(folder))
        tables = dict(_tables(folder, rows))
    except (SafetensorError, OSError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"the weights of {folder} cannot be read: {' '.join(str(error).split())}") from error
    heads = [name for name in tables if _module(name) in _HEADS]
    embeddings = [name for name in tables if name not in heads]
    if len(embeddings) != 1 or len(heads) > 1:
        raise UserError(f"{folder} has no one embedding with {rows:,} rows: {', '.join(sorted(tables)) or 'none has'}")
    embedding = TokenRows(tables[embeddings[0]])
    return {"input": embedding, "output": TokenRows(tables[heads[0]])} if heads else {"both": embedding}


def _tables(folder: Path, rows: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Every matrix with a row per token that belongs to no layer."""
    index, files = folder / _INDEX, [_WEIGHTS]
    if index.is_file():  # only names: an index is no reason to open a file outside the folder
        files = sorted({Path(name).name for name in json.loads(index.read_bytes())["weight_map"].values()})
    for file in files:
        with safe_open(folder / file, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118  # not a mapping
                in_layer = any(part.isdigit() for part in name.split("."))
                shape = weights.get_slice(name).get_shape()
                if len(shape) == 2 and shape[0] == rows and not in_layer and _module(name) not in _NO_TABLES:
                    yield name, weights.get_tensor(name)


def _module(name: str) -> str:
    return name.split(".")[-2]


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


def use_chart(analysis: VocabularyAnalysis) -> Chart | None:
    """Different copies by step; None where nothing was sampled while thinking."""
    if not any(point.thinking for point in analysis.use):
        return None
    title = "Different reasoning tokens"
    line = Line("", [point.step for point in analysis.use], [point.distinct for point in analysis.use])
    note = f"Of {analysis.layout.size:,}, sampled at each step."
    return Chart(title, line_chart([line], y_label="different copies", title=title), note)


def drift_rows(analysis: VocabularyAnalysis) -> list[tuple[str, ...]]:
    """Of each table: its name, and quantiles (5, 50, 95 %) of the distance of copies from their sources."""
    rows = []
    for side, (distance, _) in analysis.drift.items():
        known = distance[np.isfinite(distance)]
        if known.size:
            rows.append((_SIDES[side], *(f"{value:.3g}" for value in np.quantile(known, (0.05, 0.5, 0.95)))))
    return rows


def copy_rows(analysis: VocabularyAnalysis) -> Iterator[list[Any]]:
    """A header, and a row for each copy that was sampled or is among those furthest from their sources."""
    layout, sampled = analysis.layout, analysis.sampled
    moves = (f"{name}_{side}" for side in analysis.drift for name in ("from_source", "from_start"))
    yield ["id", "source_id", "copy", "text", "sampled", "source_sampled", *moves]
    listed = sampled[layout.standard_size :] > 0
    for distance, _ in analysis.drift.values():
        furthest = np.argsort(-np.nan_to_num(distance), kind="stable")[:MOST_MOVED]
        listed[furthest[np.nan_to_num(distance[furthest]) > 0]] = True
    for k in np.flatnonzero(listed).tolist():
        token, source = layout.standard_size + k, layout.source_ids[k]
        moved = [float(value) for columns in analysis.drift.values() for value in columns[:, k]]
        text, counts = token_text(analysis.tokenizer, source), (int(sampled[token]), int(sampled[source]))
        yield [token, source, layout.copy_indices[k], text, *counts, *moved]


def token_text(tokenizer: Tokenizer | None, token: int) -> str:
    """Spaces and control characters visible; the id where there is no text, or a part of a character alone."""
    text = "" if tokenizer is None else tokenizer.decode([token], skip_special_tokens=False)
    if tokenizer is not None and (tokenizer.id_to_token(token) or "").startswith("▁"):
        text = f" {text.removeprefix(' ')}"  # SentencePiece's space, which some decoders drop at the start of a text
    return f"#{token}" if not text or "\ufffd" in text else visible_text(text, "⏎").replace(" ", "␣")


def write_vocabulary(analysis: VocabularyAnalysis) -> None:
    """Write `<run>/vocabulary.csv`: text in quotes, what is not finite empty."""
    written = io.StringIO()
    writer = csv.writer(written, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    for row in copy_rows(analysis):
        writer.writerow(["" if isinstance(cell, float) and not math.isfinite(cell) else cell for cell in row])
    atomic_write(analysis.folder / VOCABULARY, written.getvalue())
