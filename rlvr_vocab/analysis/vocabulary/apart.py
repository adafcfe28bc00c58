"""Copies that have come apart from their sources: in their rows, and in what they are written after."""

from __future__ import annotations

import math

import numpy as np

from rlvr_vocab.analysis.vocabulary.story import Apart, RowDrift, Usage
from rlvr_vocab.analysis.vocabulary.tally import Tally

# With fewer occurrences of either, what stands before them tells nothing.
FEWEST = 30


def come_apart(usage: Usage, drift: RowDrift, tally: Tally) -> tuple[Apart, ...]:
    """Copies that were used late, the furthest apart first; the score's formula is `Apart`'s.

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
        found.append(Apart(k, int(usage.late[source]), uses, 1 - from_source, 1 - from_start, divergence, score))
    return tuple(sorted(found, key=lambda each: (-each.score, each.k)))


class Contexts:
    """What stands before each id while thinking, in the late window."""

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
    """In bits, of two distributions `(2, outcomes)` without an outcome that neither has."""
    mixed = shares.mean(axis=0)
    terms = np.where(shares > 0, shares * np.log2(np.where(shares > 0, shares, 1) / mixed), 0)
    return float(terms.sum() / 2)
