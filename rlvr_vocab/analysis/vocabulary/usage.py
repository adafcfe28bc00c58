"""Which copies were used and in place of what, and which copies have separated from their sources."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from rlvr_vocab.analysis.vocabulary.results import (
    Growth,
    RowDrift,
    SeparatedCopy,
    SourceUse,
    Usage,
)
from rlvr_vocab.analysis.vocabulary.sampled_tokens import Tally, surface_ids
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import THINKING

# A count is compared as if it were so much higher, in the smaller of the two windows.
SMOOTHING = 5.0
# With fewer occurrences of either, what stands before two ids tells nothing.
FEWEST = 30


def usage(tally: Tally) -> Usage:
    """The use of reasoning tokens while thinking."""
    early, late = tally.early.counts[THINKING], tally.late.counts[THINKING]
    thinking = (int(early.sum()), int(late.sum()))
    return Usage(
        points=tuple(tally.points),
        windows=tally.windows,
        early=early,
        late=late,
        total=tally.total,
        thinking=thinking,
        growth=tuple(_growths(early, late, thinking, tally.layout)) if tally.windows[0] != tally.windows[1] else (),
        sources=tuple(_sources(early, late, tally)),
    )


def smoothed_ratio(early: int, late: int, thinking: tuple[int, int]) -> float:
    """Use late against use early, as shares of the thinking tokens, each with `SMOOTHING` occurrences more."""
    prior = SMOOTHING / max(1, min(thinking))
    return (late / max(1, thinking[1]) + prior) / (early / max(1, thinking[0]) + prior)


def smoothed_share(counts: tuple[int, ...]) -> float:
    """Copies among all occurrences of a source, with `SMOOTHING` occurrences more, half of them copies."""
    return (sum(counts[1:]) + SMOOTHING / 2) / (sum(counts) + SMOOTHING)


def _growths(early: np.ndarray, late: np.ndarray, thinking: tuple[int, int], layout: VocabLayout) -> list[Growth]:
    """The change in use of each copy used in either window, from surest growth to surest decline."""
    standard = layout.standard_size
    used = np.flatnonzero(early[standard:] + late[standard:])
    growths = []
    for k in used.tolist():
        before, after = int(early[standard + k]), int(late[standard + k])
        ratio = smoothed_ratio(before, after, thinking)
        error = math.sqrt(1 / (before + SMOOTHING) + 1 / (after + SMOOTHING))
        growths.append(Growth(k, before, after, ratio, math.log(ratio) / error))
    return sorted(growths, key=lambda growth: (-growth.evidence, growth.k))


def _sources(early: np.ndarray, late: np.ndarray, tally: Tally) -> Iterator[SourceUse]:
    """Each source with an open copy that was written in either window, the most written one first."""
    layout = tally.layout
    written = np.bincount(surface_ids(layout), weights=early + late, minlength=layout.standard_size)
    written[list(layout.control_ids)] = 0
    ids: dict[int, list[int]] = {}
    for k, source in enumerate(layout.source_ids):
        if written[source]:
            ids.setdefault(source, [source]).append(layout.standard_size + k)
    for source in sorted(ids, key=lambda source: (-written[source], source)):
        before, after = (tuple(counts[ids[source]].tolist()) for counts in (early, late))
        yield SourceUse(source, before, after, smoothed_share(before), smoothed_share(after))


def separated_copies(usage: Usage, drift: RowDrift, tally: Tally) -> tuple[SeparatedCopy, ...]:
    """Copies that were used late, by the score of `SeparatedCopy`, the highest first.

    Args:
        drift: on the output side, of all open copies.
    """
    layout = tally.layout
    places = {k: place for place, k in enumerate(drift.ks.tolist())}
    contexts = Contexts(tally)
    found = []
    for k in np.flatnonzero(usage.late[layout.standard_size :]).tolist():
        if k not in places or not math.isfinite(drift.from_source[places[k]]):
            continue
        copy, source = layout.standard_size + k, layout.source_ids[k]
        from_source, from_start = float(drift.from_source[places[k]]), float(drift.from_start[places[k]])
        divergence = contexts.divergence(source, copy)
        uses = int(usage.late[copy])
        score = (from_source + (0.0 if math.isnan(divergence) else divergence)) * math.sqrt(uses)
        found.append(
            SeparatedCopy(k, int(usage.late[source]), uses, 1 - from_source, 1 - from_start, divergence, score)
        )
    return tuple(sorted(found, key=lambda each: (-each.score, each.k)))


class Contexts:
    """The tokens before each id while thinking, in the late window."""

    def __init__(self, tally: Tally) -> None:
        keys = np.concatenate([np.empty(0, np.int64), *(keys for keys, _ in tally.pairs)])
        counts = np.concatenate([np.empty(0, np.int64), *(counts for _, counts in tally.pairs)])
        rows = tally.layout.rows
        order = np.argsort(keys % rows, kind="stable")
        self._ids, self._before, self._counts = (keys % rows)[order], (keys // rows)[order], counts[order]

    def divergence(self, token: int, other: int) -> float:
        """Jensen-Shannon divergence in bits of what stands before two ids, what chance explains taken off.

        Two samples of sizes n and m from one distribution over c outcomes diverge by about
        (c - 1) (1/n + 1/m) / (8 ln 2) bits (a chi-square's expectation). NaN below `FEWEST` occurrences of either.
        """
        samples = [self._of(each) for each in (token, other)]
        sizes = [int(counts.sum()) for _, counts in samples]
        if min(sizes) < FEWEST:
            return float("nan")
        outcomes = np.union1d(samples[0][0], samples[1][0])
        shares = np.zeros((2, len(outcomes)))
        for row, (before, counts) in enumerate(samples):
            np.add.at(shares[row], np.searchsorted(outcomes, before), counts / sizes[row])
        chance = (len(outcomes) - 1) * (1 / sizes[0] + 1 / sizes[1]) / (8 * math.log(2))
        return max(0.0, _jensen_shannon(shares) - chance)

    def _of(self, token: int) -> tuple[np.ndarray, np.ndarray]:
        first, last = np.searchsorted(self._ids, [token, token + 1])
        return self._before[first:last], self._counts[first:last]


def _jensen_shannon(shares: np.ndarray) -> float:
    """Divergence in bits of two distributions `(2, outcomes)`; no outcome may be absent from both."""
    mixed = shares.mean(axis=0)
    terms = np.where(shares > 0, shares * np.log2(np.where(shares > 0, shares, 1) / mixed), 0)
    return float(terms.sum() / 2)
