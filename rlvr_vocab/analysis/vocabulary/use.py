"""Which copies were used, what became more and less of, and in place of what."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from rlvr_vocab.analysis.vocabulary.story import Growth, SourceUse, Usage, Window
from rlvr_vocab.analysis.vocabulary.tally import Tally
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import THINKING

# A count is compared as if it were so much higher, in the smaller of the two windows.
SMOOTHING = 5.0


def usage(tally: Tally, windows: tuple[Window, Window]) -> Usage:
    """What was sampled while thinking, of a model with reasoning tokens."""
    early, late = tally.early.counts[THINKING], tally.late.counts[THINKING]
    thinking = (int(early.sum()), int(late.sum()))
    return Usage(
        points=tuple(tally.points),
        windows=windows,
        early=early,
        late=late,
        total=tally.total,
        thinking=thinking,
        growth=tuple(_growths(early, late, thinking, tally.layout)) if windows[0] != windows[1] else (),
        sources=tuple(_sources(early, late, tally)),
    )


def smoothed_ratio(early: int, late: int, thinking: tuple[int, int]) -> float:
    """Use late against use early, as shares of the thinking tokens, each with `SMOOTHING` occurrences more."""
    prior = SMOOTHING / max(1, min(thinking))
    return (late / max(1, thinking[1]) + prior) / (early / max(1, thinking[0]) + prior)


def smoothed_share(counts: tuple[int, ...]) -> float:
    """Copies among all occurrences of a source, with `SMOOTHING` occurrences more, half of them copies."""
    return (sum(counts[1:]) + SMOOTHING / 2) / (sum(counts) + SMOOTHING)


def copies_by_source(ks: Iterable[int], layout: VocabLayout) -> dict[int, list[int]]:
    """The copies of each source, in their order."""
    found: dict[int, list[int]] = {}
    for k in ks:
        found.setdefault(layout.source_ids[k], []).append(k)
    return found


def _growths(early: np.ndarray, late: np.ndarray, thinking: tuple[int, int], layout: VocabLayout) -> list[Growth]:
    """For each copy that was used in either window, the one that surely grew first, the one that surely shrank last."""
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
    sources = np.asarray(layout.source_ids, dtype=np.int64)
    both = early + late
    written = both[: layout.standard_size].copy()
    np.add.at(written, sources, both[layout.standard_size :])
    shut = set(layout.control_ids)
    wanted = {int(source) for source in np.unique(sources) if written[source] and int(source) not in shut}
    copies = copies_by_source((k for k in range(layout.size) if layout.source_ids[k] in wanted), layout)
    for source in sorted(wanted, key=lambda source: (-written[source], source)):
        ids = [source, *(layout.standard_size + k for k in copies[source])]
        before, after = (tuple(int(counts[token]) for token in ids) for counts in (early, late))
        yield SourceUse(source, before, after, smoothed_share(before), smoothed_share(after))
