"""The results of analysing the vocabulary of a run: what was sampled, how far its rows moved, and at what entropy.

A copy is a reasoning token; `k` is its place among them, so its id is `standard_size + k`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from rlvr_vocab.analysis.charts import Line
from rlvr_vocab.analysis.vocabulary.token_text import TokenTexts
from rlvr_vocab.vocab.layout import VocabLayout

# A tied model has one table for both sides.
Side = Literal["both", "input", "output"]
Kind = Literal["entropy", "surprisal"]
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


class Window(NamedTuple):
    """The steps at one end of a run that are held against those at the other."""

    first_step: int
    last_step: int


class UsePoint(NamedTuple):
    """One step: thinking tokens, how many of them are copies, and how many different ones."""

    step: int
    thinking: int
    copies: int
    distinct: int

    @property
    def share(self) -> float:
        return self.copies / self.thinking if self.thinking else float("nan")


class Growth(NamedTuple):
    """How the use of one copy changed.

    `ratio` is late against early, per thinking token and smoothed; `evidence` is its logarithm in standard errors
    (of Poisson counts), by which it is ranked, so that rare ones do not lead.
    """

    k: int
    early: int
    late: int
    ratio: float
    evidence: float


class SourceUse(NamedTuple):
    """A standard token while thinking: how often it was written as itself and as each of its copies.

    `early` and `late` begin with the token itself; the shares, of copies among all, are smoothed towards a half.
    """

    source: int
    early: tuple[int, ...]
    late: tuple[int, ...]
    early_share: float
    late_share: float


@dataclass(frozen=True)
class Usage:
    """What was sampled while thinking.

    Attributes:
        early, late: `(rows,)` int64, how often each id was sampled in the first and the last window.
        total: the same in all steps that were read.
        thinking: thinking tokens in the early and the late window.
    """

    points: tuple[UsePoint, ...]
    windows: tuple[Window, Window]
    early: np.ndarray
    late: np.ndarray
    total: np.ndarray
    thinking: tuple[int, int]
    growth: tuple[Growth, ...]
    sources: tuple[SourceUse, ...]


class DriftPoint(NamedTuple):
    """Copies at one checkpoint: quantiles (`QUANTILES`) of what `RowDrift` holds for each."""

    step: int
    name: str
    side: Side
    group: str
    copies: int
    cosine_to_source: tuple[float, ...]
    cosine_to_start: tuple[float, ...]
    norm_to_start: tuple[float, ...]


@dataclass(frozen=True)
class RowDrift:
    """Rows of copies at a checkpoint, `(copies,)` float64 each; NaN where a row is all zeros.

    Attributes:
        ks: which copies.
        from_source, from_start: 1 - cosine to the source's row now, and to the copy's own before training.
        source_from_start: 1 - cosine of the source's row now to itself before training.
        norm, source_norm, start_norm: lengths of the copy's row now, of its source's now, of its own at the start.
        difference: length of what the copy's row differs by from its source's now.
    """

    side: Side
    ks: np.ndarray
    from_source: np.ndarray
    from_start: np.ndarray
    source_from_start: np.ndarray
    norm: np.ndarray
    source_norm: np.ndarray
    start_norm: np.ndarray
    difference: np.ndarray


@dataclass(frozen=True)
class Drift:
    """Rows over the checkpoints, and all of them at the end.

    Attributes:
        points: over time, for copies that were sampled and others apart.
        final: one for each side.
    """

    points: tuple[DriftPoint, ...]
    final: tuple[RowDrift, ...]
    end: str
    tied: bool


@dataclass(frozen=True)
class Projection:
    """What training added to the rows of sources and copies, in the two directions that hold most of it.

    Attributes:
        ks: which copies: the most used ones.
        of: how many copies there are to choose from.
        source, copy: `(copies, 2)` each, a source as often as it has copies here.
        explained: the share of the squared movements that the two directions hold.
    """

    side: Side
    ks: np.ndarray
    of: int
    source: np.ndarray
    copy: np.ndarray
    explained: float


class TokenUncertainty(NamedTuple):
    """A surface token in a region, as what it was written (`any`, `standard`, `copy 1` …), early and late.

    Means in nats, NaN without a position. So that rare tokens do not lead, `level` is the late mean drawn towards its
    region's.
    """

    region: str
    source: int
    written_as: str
    early_count: int
    late_count: int
    early: float
    late: float
    level: float


@dataclass(frozen=True)
class Uncertainty:
    """Entropy or surprisal of the tokens.

    Attributes:
        kind: `entropy` over texts where a token was drawn (over ids in a run that recorded none of copies);
            `surprisal` of the drawn token where a run recorded no entropies.
        means: over the sampled tokens of each step, by region, and by what was written while thinking.
    """

    kind: Kind
    means: tuple[Line, ...]
    tokens: tuple[TokenUncertainty, ...]


class SeparatedCopy(NamedTuple):
    """A copy against its source at the end; `score = (1 - cosine to source + contexts) · √(uses as copy)`.

    `contexts` is the divergence (Jensen-Shannon, bits, what chance explains taken off) of the surface tokens before
    the copy from those before its source; NaN, and 0 in the score, where either is too rare to tell.
    """

    k: int
    as_standard: int
    as_copy: int
    cosine_to_source: float
    cosine_to_start: float
    contexts: float
    score: float


@dataclass(frozen=True, eq=False)
class VocabularyAnalysis:
    """What became of the vocabulary of a run; a part is None where the run left nothing to compute it from.

    Attributes:
        steps: steps whose completions were read, of `steps_there`.
        notes: sentences on what is missing or was left out, and why.
    """

    folder: Path
    layout: VocabLayout
    texts: TokenTexts
    steps: tuple[int, ...]
    steps_there: int
    notes: tuple[str, ...]
    usage: Usage | None
    drift: Drift | None
    projection: Projection | None
    uncertainty: Uncertainty | None
    separated_copies: tuple[SeparatedCopy, ...]
