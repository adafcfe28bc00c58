"""How far the rows of copies have moved, from their sources and from where they began."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch

from rlvr_vocab.analysis.vocabulary.story import QUANTILES, DriftPoint, RowDrift, Side
from rlvr_vocab.analysis.vocabulary.token_rows import TokenRows
from rlvr_vocab.vocab.layout import VocabLayout

# Rows held in float32 at a time, of each of the four tables that are compared.
_BLOCK = 1024
# Over time so many copies of each group tell; at the end all of them are measured.
MOST_ROWS_OVER_TIME = 4096
_COLUMNS = 6

Tables = Mapping[Side, TokenRows]


def apartness(units_a: torch.Tensor, units_b: torch.Tensor) -> torch.Tensor:
    """1 - cosine of each row of `(N, H)` unit vectors with that of the other, exact for the smallest angles.

    It is half the squared distance of the two: 1 minus a rounded cosine near 1 would be noise.
    """
    return 0.5 * (units_a - units_b).square_().sum(dim=1)


def units(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of length 1, NaN for those that are all zeros, and their lengths."""
    norms = rows.norm(dim=1)
    return rows / norms[:, None], norms


def row_drift(side: Side, now: TokenRows, start: TokenRows, layout: VocabLayout, ks: np.ndarray) -> RowDrift:
    """What has become of the rows of some copies on one side, a block of them after another."""
    sources = np.asarray(layout.source_ids, dtype=np.int64)
    columns = np.empty((_COLUMNS, len(ks)))
    for first in range(0, len(ks), _BLOCK):
        block = ks[first : first + _BLOCK]
        of_copy, of_source = block + layout.standard_size, sources[block]
        copy, norm = units(now.rows(of_copy))
        source, source_norm = units(now.rows(of_source))
        copy_start, start_norm = units(start.rows(of_copy))
        source_start, _ = units(start.rows(of_source))
        measured = (
            apartness(copy, source),
            apartness(copy, copy_start),
            apartness(source, source_start),
            *(norm, source_norm, start_norm),
        )
        columns[:, first : first + len(block)] = torch.stack(measured).numpy()
    return RowDrift(side, ks, *columns)


def drift_points(step: int, name: str, drift: RowDrift, groups: Mapping[str, np.ndarray]) -> Iterator[DriftPoint]:
    """Quantiles over each group of copies, by their `ks`."""
    for group, ks in groups.items():
        chosen = np.isin(drift.ks, ks) & np.isfinite(drift.from_start) & np.isfinite(drift.from_source)
        if not chosen.any():
            continue
        lengthened = drift.norm[chosen] / drift.start_norm[chosen]
        yield DriftPoint(
            step,
            name,
            drift.side,
            group,
            int(chosen.sum()),
            _quantiles(1 - drift.from_source[chosen]),
            _quantiles(1 - drift.from_start[chosen]),
            _quantiles(lengthened),
        )


def groups_of_copies(open_ks: np.ndarray, total: np.ndarray | None, layout: VocabLayout) -> dict[str, np.ndarray]:
    """Copies that were sampled and the others, or all where nobody knows; of each at most `MOST_ROWS_OVER_TIME`."""
    if total is None:
        return {"all": thinned(open_ks)}
    used = total[open_ks + layout.standard_size] > 0
    groups = {"sampled": open_ks[used], "never sampled": open_ks[~used]}
    return {name: thinned(ks) for name, ks in groups.items() if len(ks)}


def open_copies(layout: VocabLayout) -> np.ndarray:
    """The copies that may ever be sampled: those of control ids may not."""
    sources = np.asarray(layout.source_ids, dtype=np.int64)
    return np.flatnonzero(~np.isin(sources, layout.control_ids))


def thinned(ks: np.ndarray) -> np.ndarray:
    """At most `MOST_ROWS_OVER_TIME` of them, evenly spread."""
    if len(ks) <= MOST_ROWS_OVER_TIME:
        return ks
    return ks[np.linspace(0, len(ks) - 1, MOST_ROWS_OVER_TIME).round().astype(int)]


def _quantiles(values: np.ndarray) -> tuple[float, ...]:
    return tuple(np.quantile(values, QUANTILES).tolist())
