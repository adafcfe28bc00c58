"""What of the story comes first: the few rows of each kind that people are shown."""

from __future__ import annotations

import math

import numpy as np

from rlvr_vocab.analysis.vocabulary.story import RowDrift, SourceUse, TokenUncertainty, Uncertainty, Usage


def changed_sources(usage: Usage, most: int) -> list[SourceUse]:
    """Sources whose share of copies changed most, counting how often that was seen: |change| · √occurrences.

    Occurrences are those in the window that has fewer of them.
    """

    def evidence(source: SourceUse) -> float:
        return abs(source.late_share - source.early_share) * math.sqrt(min(sum(source.early), sum(source.late)))

    changed = [source for source in usage.sources if evidence(source) > 0]
    return sorted(changed, key=lambda source: (-evidence(source), source.source))[:most]


def top_movers(drift: RowDrift, most: int) -> np.ndarray:
    """Places in `drift` of the copies that are furthest from where they began."""
    known = np.flatnonzero(np.isfinite(drift.from_start) & (drift.from_start > 0))
    return known[np.argsort(-drift.from_start[known], kind="stable")[:most]]


def highest(uncertainty: Uncertainty, most: int) -> list[TokenUncertainty]:
    """Surface tokens of the highest late level while thinking."""
    known = [each for each in _surface(uncertainty) if math.isfinite(each.level)]
    return sorted(known, key=lambda each: (-each.level, each.source))[:most]


def changed_most(uncertainty: Uncertainty, most: int) -> list[TokenUncertainty]:
    """Surface tokens whose level changed most while thinking, up or down."""
    known = [each for each in _surface(uncertainty) if math.isfinite(each.change)]
    return sorted(known, key=lambda each: (-abs(each.change), each.source))[:most]


def _surface(uncertainty: Uncertainty) -> list[TokenUncertainty]:
    return [each for each in uncertainty.tokens if (each.region, each.written_as) == ("thinking", "any")]
