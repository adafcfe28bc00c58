"""Entropy or surprisal of the sampled tokens: by region over training, and by token early and late."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from rlvr_vocab.analysis.charts import Line
from rlvr_vocab.analysis.vocabulary.results import Kind, TokenUncertainty, Uncertainty
from rlvr_vocab.analysis.vocabulary.sampled_tokens import Sums, Tally, surface_ids
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import ANSWERING, THINKING

# A token's mean is drawn towards its region's, as if so many positions more had had that.
PRIOR_POSITIONS = 30
_REGION_NAMES = {THINKING: "thinking", ANSWERING: "answering"}
_MEANS = ("answering", "thinking", "thinking, standard tokens", "thinking, copies")

# Positions with a value and the sum of their values, by id, in one region and window.
_Column = tuple[np.ndarray, np.ndarray]


def uncertainty(tally: Tally, kind: Kind) -> Uncertainty:
    """The entropies, or surprisals, of a run."""
    return Uncertainty(kind, tuple(_lines(tally)), tuple(_tokens(tally)))


def _lines(tally: Tally) -> Iterator[Line]:
    for place, name in enumerate(_MEANS, start=1):
        known = [(row[0], float(row[place])) for row in tally.means if np.isfinite(row[place])]
        if known:
            yield Line(name, tuple(step for step, _ in known), tuple(value for _, value in known))


def _tokens(tally: Tally) -> Iterator[TokenUncertainty]:
    """Every surface token in every region as whatever it was written, and as each thing it was written as."""
    surface = surface_ids(tally.layout)
    for region, name in _REGION_NAMES.items():
        early, late = _column(tally.early, region), _column(tally.late, region)
        yield from _by_token(
            name, _by_surface(early, surface), _by_surface(late, surface), lambda token: (token, "any")
        )
        if region == THINKING and tally.layout.size:
            yield from _by_token(name, early, late, lambda token: _written_as(token, tally.layout))


def _column(sums: Sums, region: int) -> _Column:
    return sums.valued[region], sums.nats[region]


def _by_surface(column: _Column, surface: np.ndarray) -> _Column:
    counts, nats = (np.bincount(surface, weights=values, minlength=len(surface)) for values in column)
    return counts.astype(np.int64), nats


def _by_token(
    region: str, early: _Column, late: _Column, name: Callable[[int], tuple[int, str]]
) -> Iterator[TokenUncertainty]:
    (early_counts, early_nats), (late_counts, late_nats) = early, late
    mean = _mean(late_nats.sum(), late_counts.sum())
    for token in np.flatnonzero(early_counts + late_counts).tolist():
        source, written_as = name(token)
        before, after = int(early_counts[token]), int(late_counts[token])
        level = (late_nats[token] + PRIOR_POSITIONS * mean) / (after + PRIOR_POSITIONS) if after else math.nan
        yield TokenUncertainty(
            region=region,
            source=source,
            written_as=written_as,
            early_count=before,
            late_count=after,
            early=_mean(early_nats[token], before),
            late=_mean(late_nats[token], after),
            level=float(level),
        )


def _mean(nats: float, count: int) -> float:
    return float(nats / count) if count else math.nan


def _written_as(token: int, layout: VocabLayout) -> tuple[int, str]:
    k = token - layout.standard_size
    return (token, "standard") if k < 0 else (layout.source_ids[k], f"copy {layout.copy_indices[k]}")
