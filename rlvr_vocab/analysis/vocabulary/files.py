"""The analysis as files that other tools read: `<run>/vocabulary/*.csv`, `about.json` and the charts."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlvr_vocab.analysis.vocabulary.charts import vocabulary_charts
from rlvr_vocab.analysis.vocabulary.drift import top_movers
from rlvr_vocab.analysis.vocabulary.results import (
    QUANTILES,
    Drift,
    Projection,
    RowDrift,
    Uncertainty,
    Usage,
    VocabularyAnalysis,
)
from rlvr_vocab.analysis.vocabulary.usage import smoothed_ratio
from rlvr_vocab.atomic_file import write_whole

FOLDER = "vocabulary"
# Copies that were never sampled have a row in tokens.csv if they are among so many that moved most.
MOST_MOVERS = 1000
_Rows = Iterable[Sequence[Any]]


def write_analysis(analysis: VocabularyAnalysis) -> Path:
    """Write every part that there is into `<run>/vocabulary/`, and remove what an earlier analysis left there."""
    folder = analysis.folder / FOLDER
    folder.mkdir(exist_ok=True)
    texts = {f"{name}.csv": _as_csv(rows) for name, rows in _tables(analysis)}
    texts |= {f"{chart.name}.svg": chart.svg + "\n" for chart in vocabulary_charts(analysis)}
    texts["about.json"] = json.dumps(_about(analysis), ensure_ascii=False, indent=2) + "\n"
    for path in [*folder.glob("*.csv"), *folder.glob("*.svg")]:
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        write_whole(folder / name, text)
    return folder


def _tables(analysis: VocabularyAnalysis) -> Iterator[tuple[str, _Rows]]:
    if analysis.usage:
        yield "usage", _usage(analysis.usage)
        yield "sources", _sources(analysis, analysis.usage)
    if analysis.layout.size and (analysis.usage or analysis.drift):
        yield "tokens", _tokens(analysis)
    if analysis.drift:
        yield "drift", _drift(analysis.drift)
    if analysis.projection:
        yield "projection", _projection(analysis, analysis.projection)
    if analysis.uncertainty:
        yield analysis.uncertainty.kind, _means(analysis.uncertainty)
        yield f"{analysis.uncertainty.kind}_by_token", _by_token(analysis, analysis.uncertainty)
    if analysis.separated_copies:
        yield "apart", _separated_copies(analysis)


def _usage(usage: Usage) -> Iterator[Sequence[Any]]:
    yield ("step", "thinking_tokens", "reasoning_tokens", "share", "distinct")
    for point in usage.points:
        yield point.step, point.thinking, point.copies, point.share, point.distinct


def _sources(analysis: VocabularyAnalysis, usage: Usage) -> Iterator[Sequence[Any]]:
    """A row for each thing that a source was written as."""
    yield ("source_id", "text", "written_as", "early", "late", "early_share", "late_share")
    texts = analysis.texts.of([each.source for each in usage.sources])
    for source, text in zip(usage.sources, texts, strict=True):
        early, late = sum(source.early), sum(source.late)
        for copy, (before, after) in enumerate(zip(source.early, source.late, strict=True)):
            written_as = f"copy {copy}" if copy else "standard"
            shares = (before / early if early else math.nan, after / late if late else math.nan)
            yield (source.source, text, written_as, before, after, *shares)


_OF_A_COPY = ("cosine_to_source", "cosine_to_start", "norm", "source_norm", "start_norm", "difference")


def _tokens(analysis: VocabularyAnalysis) -> Iterator[Sequence[Any]]:
    """A row for each copy that was sampled, and for those of the others that moved most."""
    layout, usage = analysis.layout, analysis.usage
    sides = analysis.drift.final if analysis.drift else ()
    yield (
        *("id", "source_id", "copy", "text", "early", "late", "total", "source_early", "source_late", "ratio"),
        *(f"{name}_{drift.side}" for drift in sides for name in _OF_A_COPY),
    )
    ks = _listed_copies(analysis)
    rows = np.concatenate([np.empty((len(ks), 0)), *(_by_copy(drift, layout.size)[ks] for drift in sides)], axis=1)
    ids = ks + layout.standard_size
    for k, token, text, row in zip(ks.tolist(), ids.tolist(), analysis.texts.of(ids), rows.tolist(), strict=True):
        source = layout.source_ids[k]
        yield (token, source, layout.copy_indices[k], text, *_use_of(usage, token, source), *row)


def _listed_copies(analysis: VocabularyAnalysis) -> np.ndarray:
    """The copies that have a row in tokens.csv."""
    used = analysis.usage.total[analysis.layout.standard_size :] if analysis.usage else np.zeros(0, np.int64)
    sides = analysis.drift.final if analysis.drift else ()
    movers = (drift.ks[top_movers(drift, analysis.layout, MOST_MOVERS)] for drift in sides)
    return np.unique(np.concatenate([np.flatnonzero(used), *movers]))


def _by_copy(drift: RowDrift, size: int) -> np.ndarray:
    """A column for each of `_OF_A_COPY`; NaN for copies of control ids, which are not measured."""
    found = np.full((size, len(_OF_A_COPY)), np.nan)
    lengths = (drift.norm, drift.source_norm, drift.start_norm, drift.difference)
    columns = (1 - drift.from_source, 1 - drift.from_start, *lengths)
    found[drift.ks] = np.stack(columns, axis=1)
    return found


def _use_of(usage: Usage | None, token: int, source: int) -> list[Any]:
    if usage is None:
        return [math.nan] * 6
    early, late = int(usage.early[token]), int(usage.late[token])
    counts = [early, late, int(usage.total[token]), int(usage.early[source]), int(usage.late[source])]
    return [*counts, smoothed_ratio(early, late, usage.thinking)]


def _drift(drift: Drift) -> Iterator[Sequence[Any]]:
    kinds = ("cosine_to_source", "cosine_to_start", "norm_to_start")
    yield (
        *("step", "model", "side", "copies", "number"),
        *(f"{kind}_q{round(100 * quantile):02d}" for kind in kinds for quantile in QUANTILES),
    )
    for point in drift.points:
        quantiles = (value for kind in kinds for value in getattr(point, kind))
        yield (point.step, point.name, point.side, point.group, point.copies, *quantiles)


def _projection(analysis: VocabularyAnalysis, projection: Projection) -> Iterator[Sequence[Any]]:
    yield ("id", "source_id", "text", "source_x", "source_y", "copy_x", "copy_y")
    ids = projection.ks + analysis.layout.standard_size
    points = np.concatenate([projection.source, projection.copy], axis=1)
    for token, text, row in zip(ids.tolist(), analysis.texts.of(ids), points.tolist(), strict=True):
        yield (token, analysis.layout.source_ids[token - analysis.layout.standard_size], text, *row)


def _means(uncertainty: Uncertainty) -> Iterator[Sequence[Any]]:
    yield ("step", "where", "nats")
    for line in uncertainty.means:
        for step, value in zip(line.steps, line.values, strict=True):
            yield step, line.name, value


def _by_token(analysis: VocabularyAnalysis, uncertainty: Uncertainty) -> Iterator[Sequence[Any]]:
    yield (
        *("region", "source_id", "text", "written_as"),
        *("early_count", "late_count", "early", "late", "late_smoothed"),
    )
    texts = analysis.texts.of([each.source for each in uncertainty.tokens])
    for each, text in zip(uncertainty.tokens, texts, strict=True):
        yield (each.region, each.source, text, *each[2:])


def _separated_copies(analysis: VocabularyAnalysis) -> Iterator[Sequence[Any]]:
    yield (
        *("id", "source_id", "text", "as_standard", "as_copy"),
        *("cosine_to_source", "cosine_to_start", "contexts_bits", "score"),
    )
    texts = analysis.texts.of([analysis.layout.source_ids[each.k] for each in analysis.separated_copies])
    for each, text in zip(analysis.separated_copies, texts, strict=True):
        yield (analysis.layout.standard_size + each.k, analysis.layout.source_ids[each.k], text, *each[1:])


def _about(analysis: VocabularyAnalysis) -> dict[str, Any]:
    early, late = analysis.usage.windows if analysis.usage else (None, None)
    return {
        "steps_read": len(analysis.steps),
        "steps_there": analysis.steps_there,
        "early_steps": early,
        "late_steps": late,
        "end": analysis.drift.end if analysis.drift else None,
        "tied": analysis.drift.tied if analysis.drift else None,
        "notes": analysis.notes,
    }


def _as_csv(rows: _Rows) -> str:
    """Text in quotes, so that no token of a comma or a quote moves a cell; what is not a number is empty."""
    written = io.StringIO()
    writer = csv.writer(written, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    for row in rows:
        writer.writerow(["" if isinstance(cell, float) and not math.isfinite(cell) else cell for cell in row])
    return written.getvalue()
