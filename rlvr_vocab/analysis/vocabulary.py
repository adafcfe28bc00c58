"""Use and drift of a run's copies, for its report and `vocabulary.csv`; copy `k` has the id `standard_size + k`."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from safetensors import safe_open
from tokenizers import Tokenizer

from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_write
from rlvr_vocab.record.completions import CompletionFiles, sampled_flags
from rlvr_vocab.record.files import COMPLETIONS, FINAL_MODEL, INITIAL_MODEL
from rlvr_vocab.text import pluralize, visible_text
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout
from rlvr_vocab.vocab.marking import read_tokenizer
from rlvr_vocab.vocab.policy import open_copies
from rlvr_vocab.vocab.regions import THINKING, scored_regions
from rlvr_vocab.vocab.weights import reading_model

VOCABULARY = "vocabulary.csv"
MOST_STEPS = 200
MOST_MOVED = 1000  # copies that have a row in the CSV although they were never sampled
_ROWS_AT_ONCE = 1024  # of each table, in float32
# The modules of a model that score tokens, by the last part of their name; a table of another name is the embedding.
_HEADS = ("lm_head", "embed_out", "output", "output_layer", "head")

_SIDES = {"both": "embedding and head", "input": "embedding", "output": "head"}  # a tied model has one table for both


@dataclass(frozen=True, eq=False)
class VocabularyAnalysis:
    """Use and drift of the copies of a run, with notes on them and on missing and unreadable files.

    sampled: `(rows,)` int64, how often each id was sampled while thinking.
    drift: by table, `(copies,)`: 1 - cosine of each copy's row in the final model and its source's; NaN for copies of
    control ids, and rows of zeros.
    """

    folder: Path
    layout: VocabLayout
    tokenizer: Tokenizer
    sampled: np.ndarray
    drift: Mapping[str, np.ndarray]
    notes: Sequence[str]


def analyse_vocabulary(run: Path) -> VocabularyAnalysis | None:
    """Read completions and final model of a run, finished or not; None for a baseline, or without an initial model."""
    initial = run / INITIAL_MODEL
    if not (initial / LAYOUT_FILE).is_file():
        return None
    layout, notes = VocabLayout.load(initial), list[str]()
    if not layout.size:
        return None
    sampled = _count_sampled(CompletionFiles(run / COMPLETIONS), layout, notes)
    drift = _read_drift(run / FINAL_MODEL, layout, notes)
    return VocabularyAnalysis(run, layout, read_tokenizer(initial), sampled, drift, notes)


def evenly_spread(steps: Sequence[int], most: int) -> list[int]:
    """At most `most` of the steps, the first and the last among them."""
    places = np.linspace(0, len(steps) - 1, min(most, len(steps))).round().astype(int)
    return [steps[place] for place in places]


def _count_sampled(files: CompletionFiles, layout: VocabLayout, notes: list[str]) -> np.ndarray:
    sampled, steps_read = np.zeros(layout.rows, np.int64), 0
    for step in evenly_spread(files.steps, MOST_STEPS):
        try:
            thought = _thinking_ids(files.table(step, ["prompt_ids", "completion_ids", "segments"]), layout)
            sampled += np.bincount(thought, minlength=layout.rows)
            steps_read += 1
        except (UserError, KeyError) as error:  # unreadable, or without ids
            notes.append(f"Step {step} was left out: {error}.")
    used = pluralize(int((sampled[layout.standard_size :] > 0).sum()), "different reasoning token")
    read = f"in {steps_read:,} of {pluralize(len(files.steps), 'step')} with completions"
    notes.append(f"{used} of {layout.size:,} sampled while thinking, {read}.")
    return sampled


def _thinking_ids(table: pa.Table, layout: VocabLayout) -> np.ndarray:
    found = [np.zeros(0, np.int64)]
    segments = table["segments"].to_pylist() if "segments" in table.column_names else [()] * len(table)
    columns = (table["prompt_ids"].to_numpy(), table["completion_ids"].to_numpy(), segments)
    for prompt, completion, of_row in zip(*columns, strict=True):
        ids = torch.from_numpy(np.concatenate([prompt, completion]).astype(np.int64))
        thinking = scored_regions(ids[None], layout)[0, len(prompt) :].numpy() == THINKING
        found.append(completion[thinking & sampled_flags(of_row, len(completion))])
    return np.concatenate(found)


def _read_drift(final_model: Path, layout: VocabLayout, notes: list[str]) -> dict[str, np.ndarray]:
    if not final_model.is_dir():
        notes.append("The run has no final model yet: the drift of the copies is unknown.")
        return {}
    try:
        tables = token_tables(final_model, layout.rows)
    except UserError as error:
        notes.append(f"The drift of the copies is unknown: {error}.")
        return {}
    ids, sources = open_copies(layout)
    drift = {side: np.full(layout.size, np.nan) for side in tables}
    for side, table in tables.items():
        drift[side][ids - layout.standard_size] = _distances(table, ids, sources)
        low, middle, high = np.nanquantile(drift[side], (0.05, 0.5, 0.95))
        notes.append(
            f"Distance (1 − cosine) of copies from their sources in the {_SIDES[side]} of the final model: median "
            f"{middle:.3g}, 90 % from {low:.3g} to {high:.3g}."
        )
    return drift


def _distances(table: torch.Tensor, ids: torch.Tensor, others: torch.Tensor) -> np.ndarray:
    """`(ids,)`: 1 - cosine of the rows of ids and others, block by block.

    It is half the squared distance of the unit vectors: 1 minus a rounded cosine near 1 would be noise.
    """
    found = []
    for blocks in zip(ids.split(_ROWS_AT_ONCE), others.split(_ROWS_AT_ONCE), strict=True):
        one, other = (rows / rows.norm(dim=1, keepdim=True) for rows in (table[block].float() for block in blocks))
        found.append(0.5 * (one - other).square().sum(dim=1))
    return torch.cat(found).numpy()


def token_tables(folder: Path, rows: int) -> dict[str, torch.Tensor]:
    """Embedding and head, or the one table of a tied model: `(rows, H)`, mapped from its file; UserError without."""
    tables: dict[str, torch.Tensor] = {}
    with reading_model(folder):
        for file in sorted(folder.glob("*.safetensors")):
            with safe_open(file, framework="pt") as weights:
                for name in weights.keys():  # noqa: SIM118  # not a mapping
                    in_layer, shape = any(map(str.isdigit, name.split("."))), weights.get_slice(name).get_shape()
                    if len(shape) == 2 and shape[0] == rows and not in_layer:
                        tables[name] = weights.get_tensor(name)
    heads = [name for name in tables if name.split(".")[-2] in _HEADS]
    embeddings = [name for name in tables if name not in heads]
    if len(embeddings) != 1 or len(heads) > 1:
        raise UserError(f"{folder} has no one embedding with {rows:,} rows: {', '.join(sorted(tables)) or 'none has'}")
    embedding = tables[embeddings[0]]
    return {"input": embedding, "output": tables[heads[0]]} if heads else {"both": embedding}


def token_text(tokenizer: Tokenizer, token: int) -> str:
    """Spaces and control characters visible; the id where there is no text, or a part of a character alone."""
    text = tokenizer.decode([token], skip_special_tokens=False)
    if (tokenizer.id_to_token(token) or "").startswith("▁"):
        text = f" {text.removeprefix(' ')}"  # SentencePiece's space, which some decoders drop at the start of a text
    return f"#{token}" if not text or "\ufffd" in text else visible_text(text, "⏎").replace(" ", "␣")


def write_vocabulary(analysis: VocabularyAnalysis) -> None:
    """Write `vocabulary.csv`: copies that were sampled or are furthest from sources; text in quotes, NaN empty."""
    layout, sampled, written = analysis.layout, analysis.sampled, io.StringIO()
    writer = csv.writer(written, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    sides = (f"from_source_{side}" for side in analysis.drift)
    writer.writerow(["id", "source_id", "copy", "text", "sampled", "source_sampled", *sides])
    listed = sampled[layout.standard_size :] > 0
    for distance in analysis.drift.values():
        furthest = np.argsort(-np.nan_to_num(distance), kind="stable")[:MOST_MOVED]
        listed[furthest[np.nan_to_num(distance[furthest]) > 0]] = True
    for k in np.flatnonzero(listed).tolist():
        token, source = layout.standard_size + k, layout.source_ids[k]
        text, counts = token_text(analysis.tokenizer, source), (int(sampled[token]), int(sampled[source]))
        far = (float(each[k]) if math.isfinite(each[k]) else "" for each in analysis.drift.values())
        writer.writerow([token, source, layout.copy_indices[k], text, *counts, *far])
    atomic_write(analysis.folder / VOCABULARY, written.getvalue())
