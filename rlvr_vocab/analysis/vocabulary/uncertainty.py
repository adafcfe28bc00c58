"""Entropy or surprisal of the sampled tokens: by region over training, and by token early and late."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from rlvr_vocab.analysis.charts import Line
from rlvr_vocab.analysis.vocabulary.results import TokenUncertainty, Uncertainty
from rlvr_vocab.analysis.vocabulary.sampled_tokens import Sums, Tally, surface_ids
from rlvr_vocab.record.metrics import RunRecord
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import ANSWERING, THINKING

# A token's mean is drawn towards its region's, and its change towards none, as if so many positions more had had that.
PRIOR_POSITIONS = 30
REGION_NAMES = {ANSWERING: "answering", THINKING: "thinking"}
_MEANS = ("answering", "thinking", "thinking, standard tokens", "thinking, copies")


def uncertainty(record: RunRecord, tally: Tally | None) -> Uncertainty | None:
    """The entropies, or surprisals, of a run; None where it has recorded neither entropies nor log-probabilities."""
    logged = tuple(_logged(record))
    if tally is None or tally.kind is None:
        return Uncertainty(None, logged, (), ()) if logged else None
    return Uncertainty(tally.kind, logged, tuple(_sampled(tally)), tuple(_tokens(tally)))


def _logged(record: RunRecord) -> Iterator[Line]:
    for region in ("thinking", "answering"):
        steps, values = record.series(f"entropy/{region}")
        if steps:
            yield Line(region, tuple(steps), tuple(values))


def _sampled(tally: Tally) -> Iterator[Line]:
    for place, name in enumerate(_MEANS, start=1):
        known = [(row[0], float(row[place])) for row in tally.means if np.isfinite(row[place])]
        if known:
            yield Line(name, tuple(step for step, _ in known), tuple(value for _, value in known))


def _tokens(tally: Tally) -> Iterator[TokenUncertainty]:
    """Every surface token in every region as whatever it was written, and as each thing it was written as."""
    surface = surface_ids(tally.layout)
    for region in (THINKING, ANSWERING):
        early, late = _Column.of(tally.early, region), _Column.of(tally.late, region)
        yield from _compared(REGION_NAMES[region], early.merged(surface), late.merged(surface), _as_any)
        if region == THINKING and tally.layout.size:
            yield from _compared(REGION_NAMES[region], early, late, lambda token: _written_as(token, tally.layout))


@dataclass(frozen=True)
class _Column:
    """Positions with a value and the sum of their values, by id, in one region and window."""

    counts: np.ndarray
    nats: np.ndarray

    @classmethod
    def of(cls, sums: Sums, region: int) -> _Column:
        return cls(sums.valued[region], sums.nats[region])

    def merged(self, surface: np.ndarray) -> _Column:
        """Sums by surface token."""
        counts = np.bincount(surface, weights=self.counts, minlength=len(surface)).astype(np.int64)
        return _Column(counts, np.bincount(surface, weights=self.nats, minlength=len(surface)))

    def mean(self) -> float:
        count = int(self.counts.sum())
        return float(self.nats.sum() / count) if count else float("nan")

    def mean_of(self, token: int, prior: int = 0, prior_mean: float = 0.0) -> float:
        """Mean of one token, with `prior` positions of `prior_mean` added; NaN without a position."""
        count = int(self.counts[token])
        return float((self.nats[token] + prior * prior_mean) / (count + prior)) if count else float("nan")


def _compared(
    region: str, early: _Column, late: _Column, name: Callable[[int], tuple[int, str]]
) -> Iterator[TokenUncertainty]:
    mean = late.mean()
    for token in np.flatnonzero(early.counts + late.counts).tolist():
        before, after = early.mean_of(token), late.mean_of(token)
        fewest = min(int(early.counts[token]), int(late.counts[token]))
        source, written_as = name(token)
        yield TokenUncertainty(
            region=region,
            source=source,
            written_as=written_as,
            early_count=int(early.counts[token]),
            late_count=int(late.counts[token]),
            early=before,
            late=after,
            level=late.mean_of(token, PRIOR_POSITIONS, mean),
            change=(after - before) * fewest / (fewest + PRIOR_POSITIONS),
        )


def _as_any(token: int) -> tuple[int, str]:
    return token, "any"


def _written_as(token: int, layout: VocabLayout) -> tuple[int, str]:
    k = token - layout.standard_size
    return (token, "standard") if k < 0 else (layout.source_ids[k], f"copy {layout.multiplicities[k]}")
