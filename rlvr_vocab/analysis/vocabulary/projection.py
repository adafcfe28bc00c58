"""Rows of sources and copies in two dimensions, before training and after."""

from __future__ import annotations

import numpy as np
import torch

from rlvr_vocab.analysis.vocabulary.story import Projection, Side
from rlvr_vocab.analysis.vocabulary.token_rows import TokenRows
from rlvr_vocab.vocab.layout import VocabLayout

MOST_COPIES = 300


def project(
    side: Side, now: TokenRows, start: TokenRows, layout: VocabLayout, open_ks: np.ndarray, total: np.ndarray | None
) -> Projection | None:
    """Principal components of the most used copies with their sources, start and end together; None without a copy."""
    ks = most_used(open_ks, total, layout)
    of_copy, of_source = ks + layout.standard_size, np.asarray(layout.source_ids, dtype=np.int64)[ks]
    read = [table.rows(ids).numpy() for table in (start, now) for ids in (of_source, of_copy)]
    # A run that diverged has rows of NaN, which have no place.
    finite = np.isfinite(np.stack(read)).all(axis=(0, 2))
    ks = ks[finite]
    if not len(ks):
        return None
    rows = np.concatenate([each[finite] for each in read]).astype(np.float64)
    points, explained = onto_two(rows - rows.mean(axis=0))
    moved, moved_explained = onto_two(rows[2 * len(ks) :] - rows[: 2 * len(ks)])
    source_start, copy_start, source_end, copy_end = np.split(points, 4)
    moved_source, moved_copy = np.split(moved, 2)
    return Projection(
        side=side,
        ks=ks,
        of=len(open_ks),
        source_start=source_start,
        copy_start=copy_start,
        source_end=source_end,
        copy_end=copy_end,
        explained=explained,
        moved_source=moved_source,
        moved_copy=moved_copy,
        moved_explained=moved_explained,
    )


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
    """At most `MOST_COPIES` of them, by use, then by id."""
    if len(open_ks) <= MOST_COPIES:
        return open_ks
    use = np.zeros(len(open_ks)) if total is None else total[open_ks + layout.standard_size]
    return open_ks[np.argsort(-use, kind="stable")[:MOST_COPIES]]
