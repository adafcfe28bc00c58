"""How far the rows of copies have moved from their sources and from where they began, and which way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch

from rlvr_vocab.analysis.vocabulary.models import TokenRows
from rlvr_vocab.analysis.vocabulary.results import QUANTILES, DriftPoint, Projection, RowDrift, Side
from rlvr_vocab.analysis.vocabulary.sampled_tokens import evenly_spread
from rlvr_vocab.vocab.layout import VocabLayout

# Rows held in float32 at a time, of each of the four tables that are compared.
_BLOCK = 1024
# Over time so many copies of each group tell; at the end all of them are measured.
MOST_ROWS_OVER_TIME = 4096
_COLUMNS = 7
MOST_COPIES = 300  # in the projection


def cosine_distance(units_a: torch.Tensor, units_b: torch.Tensor) -> torch.Tensor:
    """1 - cosine of each row of `(N, H)` unit vectors with that of the other, exact for the smallest angles.

    It is half the squared distance of the two: 1 minus a rounded cosine near 1 would be noise.
    """
    return 0.5 * (units_a - units_b).square_().sum(dim=1)


def units(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of length 1, NaN for those that are all zeros, and their lengths."""
    norms = rows.norm(dim=1)
    return rows / norms[:, None], norms


def row_drift(side: Side, now: TokenRows, start: TokenRows, layout: VocabLayout, ks: np.ndarray) -> RowDrift:
    """The drift of some copies on one side, computed block by block."""
    sources = np.asarray(layout.source_ids, dtype=np.int64)
    columns = np.empty((_COLUMNS, len(ks)))
    for first in range(0, len(ks), _BLOCK):
        block = ks[first : first + _BLOCK]
        of_copy, of_source = block + layout.standard_size, sources[block]
        copy_rows, source_rows = now.rows(of_copy), now.rows(of_source)
        (copy, norm), (source, source_norm) = units(copy_rows), units(source_rows)
        copy_start, start_norm = units(start.rows(of_copy))
        source_start, _ = units(start.rows(of_source))
        measured = (
            cosine_distance(copy, source),
            cosine_distance(copy, copy_start),
            cosine_distance(source, source_start),
            *(norm, source_norm, start_norm),
            (copy_rows - source_rows).norm(dim=1),
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


def top_movers(drift: RowDrift, layout: VocabLayout, most: int) -> np.ndarray:
    """Places in `drift` of the copies that are furthest from where they began.

    Copies that move with their sources have moved by themselves as far as they differ from these.
    """
    distance = drift.difference if layout.holds_differences else drift.from_start
    known = np.flatnonzero(np.isfinite(distance) & (distance > 0))
    return known[np.argsort(-distance[known], kind="stable")[:most]]


def groups_of_copies(open_ks: np.ndarray, total: np.ndarray | None, layout: VocabLayout) -> dict[str, np.ndarray]:
    """Copies that were sampled and the others, or all where nobody knows; of each at most `MOST_ROWS_OVER_TIME`."""
    if total is None:
        return {"all": _thinned(open_ks)}
    used = total[open_ks + layout.standard_size] > 0
    groups = {"sampled": open_ks[used], "never sampled": open_ks[~used]}
    return {name: _thinned(ks) for name, ks in groups.items() if len(ks)}


def _thinned(ks: np.ndarray) -> np.ndarray:
    return np.array(evenly_spread(ks.tolist(), MOST_ROWS_OVER_TIME), dtype=np.int64)


def _quantiles(values: np.ndarray) -> tuple[float, ...]:
    return tuple(np.quantile(values, QUANTILES).tolist())


def project(
    side: Side, now: TokenRows, start: TokenRows, layout: VocabLayout, open_ks: np.ndarray, total: np.ndarray | None
) -> Projection | None:
    """End minus start of the rows of the most used copies and their sources, in two dimensions; None without a copy."""
    ks = most_used(open_ks, total, layout)
    ids = np.asarray(layout.source_ids, dtype=np.int64)[ks], ks + layout.standard_size
    moved = np.stack([(now.rows(each).double() - start.rows(each).double()).numpy() for each in ids])
    # A run that diverged has rows of NaN, which have no place.
    finite = np.isfinite(moved).all(axis=(0, 2))
    if not finite.any():
        return None
    points, explained = onto_two(np.concatenate(moved[:, finite]))
    of_source, of_copy = np.split(points, 2)
    return Projection(side, ks[finite], len(open_ks), of_source, of_copy, explained)


def onto_two(rows: np.ndarray) -> tuple[np.ndarray, float]:
    """`(N, H)` on the two directions that hold most of its squares, as `(N, 2)`, and the share that they hold.

    The sign of a direction, which is free, is the one in which its largest number is positive.
    """
    directions = torch.linalg.svd(torch.from_numpy(rows), full_matrices=False).Vh[:2].numpy()
    largest = directions[np.arange(len(directions)), np.abs(directions).argmax(axis=1)]
    points = rows @ (directions.T * np.where(largest < 0, -1.0, 1.0))
    points = np.pad(points, ((0, 0), (0, 2 - points.shape[1])))
    total = float(np.square(rows).sum())
    return points, float(np.square(points).sum() / total) if total else 0.0


def most_used(open_ks: np.ndarray, total: np.ndarray | None, layout: VocabLayout) -> np.ndarray:
    """The `MOST_COPIES` most used copies; equals by id."""
    if len(open_ks) <= MOST_COPIES:
        return open_ks
    use = np.zeros(len(open_ks)) if total is None else total[open_ks + layout.standard_size]
    return open_ks[np.argsort(-use, kind="stable")[:MOST_COPIES]]
