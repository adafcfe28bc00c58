"""Counts over the sampled tokens of a run: which ids, at what entropy, after which tokens; early, late and in all."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rlvr_vocab.analysis.vocabulary.sampled import SampledStep
from rlvr_vocab.analysis.vocabulary.story import UsePoint
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import ANSWERING, THINKING

REGIONS = (ANSWERING, THINKING)


@dataclass
class Sums:
    """Per region and id, `(2, rows)`: positions, positions with a value, and the sum of their values."""

    counts: np.ndarray
    valued: np.ndarray
    nats: np.ndarray

    @classmethod
    def empty(cls, rows: int) -> Sums:
        return cls(np.zeros((2, rows), np.int64), np.zeros((2, rows), np.int64), np.zeros((2, rows)))

    def add(self, step: SampledStep) -> None:
        rows = self.counts.shape[1]
        known = np.isfinite(step.nats)
        for region in REGIONS:
            here = step.thinking == (region == THINKING)
            self.counts[region] += np.bincount(step.ids[here], minlength=rows)
            valued = here & known
            self.valued[region] += np.bincount(step.ids[valued], minlength=rows)
            self.nats[region] += np.bincount(step.ids[valued], weights=step.nats[valued], minlength=rows)


@dataclass
class Tally:
    """What one pass over the steps gathers.

    Attributes:
        means: by step: mean nats of answering, thinking, and thinking written as standard tokens and as copies.
        pairs: late thinking tokens with what stands before them, `before · rows + id`, and how often.
    """

    layout: VocabLayout
    early: Sums = field(init=False)
    late: Sums = field(init=False)
    total: np.ndarray = field(init=False)
    points: list[UsePoint] = field(default_factory=list)
    means: list[tuple[int, float, float, float, float]] = field(default_factory=list)
    pairs: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.early, self.late = Sums.empty(self.layout.rows), Sums.empty(self.layout.rows)
        self.total = np.zeros(self.layout.rows, np.int64)

    def add(self, step: SampledStep, is_early: bool, is_late: bool) -> None:
        thought = step.ids[step.thinking]
        self.total += np.bincount(thought, minlength=self.layout.rows)
        self.points.append(use_point(step.step, thought, self.layout.standard_size))
        self.means.append(self._means(step))
        if is_early:
            self.early.add(step)
        if is_late:
            self.late.add(step)
            keys = step.before[step.thinking] * self.layout.rows + thought
            self.pairs.append(np.unique(keys[keys >= 0], return_counts=True))

    def _means(self, step: SampledStep) -> tuple[int, float, float, float, float]:
        copies = step.ids >= self.layout.standard_size
        groups = (~step.thinking, step.thinking, step.thinking & ~copies, step.thinking & copies)
        answering, thinking, standard, copied = (_mean(step.nats[group]) for group in groups)
        return step.step, answering, thinking, standard, copied


def use_point(step: int, thought: np.ndarray, standard_size: int) -> UsePoint:
    counts = np.sort(np.unique(thought[thought >= standard_size], return_counts=True)[1])[::-1]
    copies = int(counts.sum())
    top_10, top_100 = (float(counts[:most].sum() / copies) if copies else float("nan") for most in (10, 100))
    return UsePoint(step, len(thought), copies, len(counts), top_10, top_100)


def _mean(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")
