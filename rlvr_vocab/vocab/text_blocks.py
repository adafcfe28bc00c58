"""The ids that a region allows in blocks of texts: standard tokens, each together with the copies of it that are open.

A text is what an id reads as. With all ids of a text in one block, one pass over the blocks gives the probability of
each id and of each text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch

from rlvr_vocab.vocab.layout import VocabLayout

# Runs of copies that are shorter are looked up one by one.
_SHORTEST_RUN = 64


@dataclass(frozen=True)
class Piece:
    """Ids of a block, at most one for each text.

    Attributes:
        ids: standard tokens, or copies; a slice where they follow one another.
        texts: the place of each one's text in the block; a slice with `ids`, else in rising order.
    """

    ids: slice | torch.Tensor
    texts: slice | torch.Tensor

    @property
    def width(self) -> int:
        ids = self.ids
        return ids.stop - ids.start if isinstance(ids, slice) else len(ids)

    def find(self, ids_n: torch.Tensor, texts_n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Where the piece has a text, and whether under a given id.

        Args:
            texts_n: places of texts in the block, outside of it too.

        Returns:
            The column of each text, whether that is a column of the piece, and whether it is the column of the id.
        """
        if isinstance(self.texts, slice) and isinstance(self.ids, slice):
            column_n = texts_n - self.texts.start
            inside_n = (column_n >= 0) & (texts_n < self.texts.stop)
            column_n = column_n.clamp(0, self.texts.stop - self.texts.start - 1)
            return column_n, inside_n, inside_n & (column_n + self.ids.start == ids_n)
        assert isinstance(self.texts, torch.Tensor) and isinstance(self.ids, torch.Tensor)
        column_n = torch.searchsorted(self.texts, texts_n).clamp(max=len(self.texts) - 1)
        inside_n = self.texts[column_n] == texts_n
        return column_n, inside_n, inside_n & (self.ids[column_n] == ids_n)

    def of_texts(self, z_nv: torch.Tensor) -> torch.Tensor:
        """The columns of a block's texts that are the piece's."""
        return z_nv[:, self.texts]

    def add_to_texts(self, total_nv: torch.Tensor, values_nc: torch.Tensor) -> None:
        if isinstance(self.texts, slice):
            total_nv[:, self.texts] += values_nc
        else:
            total_nv.index_add_(1, self.texts, values_nc)

    def to(self, device: torch.device) -> Piece:
        if isinstance(self.ids, slice) or isinstance(self.texts, slice):
            return self
        return Piece(self.ids.to(device), self.texts.to(device))


@dataclass(frozen=True)
class TextBlock:
    """Texts that follow one another, and the ids of them that a region opens.

    Attributes:
        texts: their standard tokens.
        allows_standard: whether one of these may be sampled itself.
        copies: pieces of open copies; in a run that is held as a slice some may be closed.
        log_open: for each text the log of how many ids of it are open; None where no text has two.
        slices: `(1 + copies, 4)` int32, of the standard tokens and each piece of copies: its first column where the
            logits of all lie beside one another, its first text, the end of its texts, its first id. None where a piece
            is looked up.
    """

    texts: slice
    allows_standard: bool
    copies: tuple[Piece, ...]
    log_open: torch.Tensor | None = None
    slices: torch.Tensor | None = None

    @property
    def standard(self) -> Piece:
        return Piece(self.texts, slice(0, self.texts.stop - self.texts.start))


def text_blocks(layout: VocabLayout, allowed_R: torch.Tensor, size: int, device: torch.device) -> list[TextBlock]:
    """The blocks of a region.

    Args:
        allowed_R: whether the region allows each row.
        size: ids of a block, as far as the number of copies is the same for all texts; rounded down to multiples of 128
            texts, so that rows of logits begin where wide loads may.
    """
    standard, k_open = layout.standard_size, allowed_R[layout.standard_size : layout.rows]
    runs, singles = _runs(layout, k_open)
    copies_of_each = int(k_open.sum()) / standard
    size, blocks = max(1, round(size / (1 + copies_of_each))), list[TextBlock]()
    size -= size % 128 if size > 128 else 0
    log_open_V = open_ids(layout, allowed_R).clamp(min=1).log()
    for start in range(0, standard, size):
        texts = slice(start, min(start + size, standard))
        copies = [*_runs_within(texts, runs, standard), *_singles_within(texts, singles, standard)]
        allows_standard = bool(allowed_R[texts].any())
        if copies or allows_standard:
            log_open = log_open_V[texts].to(device) if log_open_V[texts].any() else None
            pieces = tuple(piece.to(device) for piece in copies)
            blocks.append(TextBlock(texts, allows_standard, pieces, log_open, _slices(texts, copies, device)))
    return blocks


def _slices(texts: slice, copies: list[Piece], device: torch.device) -> torch.Tensor | None:
    """The table of the same name of a `TextBlock`."""
    table, column = [(0, 0, texts.stop - texts.start, texts.start)], texts.stop - texts.start
    for piece in copies:
        if isinstance(piece.ids, torch.Tensor) or isinstance(piece.texts, torch.Tensor):
            return None
        table.append((column, piece.texts.start, piece.texts.stop, piece.ids.start))
        column += piece.width
    return torch.tensor(table, dtype=torch.int32, device=device)


def open_ids(layout: VocabLayout, allowed_R: torch.Tensor) -> torch.Tensor:
    """How many ids of each text are open, `(V,)` float32; `allowed_R` says of each row whether it is."""
    standard, sources = layout.standard_size, torch.tensor(layout.source_ids, dtype=torch.long)
    return allowed_R[:standard].float().index_add(0, sources, allowed_R[standard : layout.rows].float())


@dataclass(frozen=True)
class _Run:
    """Copies `first …` of the sources `source …`, `length` of them."""

    first: int
    source: int
    length: int


@dataclass(frozen=True)
class _Singles:
    """Open copies in the order of their sources, no two of one source."""

    ks: torch.Tensor
    sources: torch.Tensor


def _runs(layout: VocabLayout, k_open: torch.Tensor) -> tuple[list[_Run], list[_Singles]]:
    """Runs of copies whose sources follow one another, and the open copies that are in none."""
    sources = torch.tensor(layout.source_ids, dtype=torch.long)
    breaks = (sources[1:] != sources[:-1] + 1).nonzero().squeeze(1) + 1
    bounds = [0, *breaks.tolist(), len(sources)]
    runs, in_none = [], k_open.clone()
    for start, end in pairwise(bounds):
        if end - start >= _SHORTEST_RUN and bool(k_open[start:end].any()):
            runs.append(_Run(start, int(sources[start]), end - start))
            in_none[start:end] = False
    nth_copy, singles = torch.tensor(layout.copy_indices, dtype=torch.long), []
    for nth in nth_copy[in_none].unique().tolist():
        ks = (in_none & (nth_copy == nth)).nonzero().squeeze(1)
        ks = ks[sources[ks].argsort()]
        singles.append(_Singles(ks, sources[ks]))
    return runs, singles


def _runs_within(texts: slice, runs: list[_Run], standard: int) -> Iterator[Piece]:
    for run in runs:
        start, end = max(texts.start, run.source), min(texts.stop, run.source + run.length)
        if start < end:
            first = standard + run.first + start - run.source
            yield Piece(slice(first, first + end - start), slice(start - texts.start, end - texts.start))


def _singles_within(texts: slice, singles: list[_Singles], standard: int) -> Iterator[Piece]:
    for group in singles:
        bounds = torch.searchsorted(group.sources, torch.tensor([texts.start, texts.stop]))
        chosen = slice(*bounds.tolist())
        if chosen.start < chosen.stop:
            yield Piece(standard + group.ks[chosen], group.sources[chosen] - texts.start)
