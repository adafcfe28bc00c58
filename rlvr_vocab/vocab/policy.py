"""The region policy: one bias table with which a model with a reasoning vocabulary is sampled, scored and served.

log p(next | context) = log_softmax(logits / temperature + bias[region(context)])

Truncated sampling adds a term for the texts that it keeps: `rlvr_vocab.vocab.truncation`.

For scoring, the ids that a region allows are grouped in blocks of texts. A text is a standard token together with its
copies. All ids of a text are in one block, so one pass gives the probability of each id and each text.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import torch

from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import THINKING

# The bias of forbidden ids in sums; its exp() is 0. With -inf, 0·log 0 in the entropy and its gradient would be NaN.
FORBIDDEN = -1e30
# Shorter runs of copies with consecutive sources are looked up one by one.
_SHORTEST_RUN = 64


class RegionPolicy:
    """Bias by region, and the rows of the output embedding that each region needs, in blocks.

    `rows` are those of the model's output embedding, if a loader padded it; the padding is forbidden. `bias` is
    `(2, rows)` float32 on the CPU, added to float32 logits after softcap and temperature; row `ANSWERING`, row
    `THINKING`; `-inf` forbids an id.
    """

    def __init__(self, layout: VocabLayout, rows: int | None = None) -> None:
        self.layout = layout
        self.bias = _bias_table(layout, max(rows or 0, layout.rows))
        self.bias_on = lru_cache(maxsize=8)(self._bias_on)
        self._sources = lru_cache(maxsize=8)(
            lambda device: torch.tensor(layout.source_ids, dtype=torch.long, device=device)
        )
        self._by_text = lru_cache(maxsize=8)(self._sort_by_text)
        self.text_blocks = lru_cache(maxsize=32)(self._text_blocks)

    def _bias_on(self, device: torch.device, *, finite: bool = False) -> torch.Tensor:
        """The table on a device; with `finite`, `FORBIDDEN` replaces `-inf`."""
        return (self.bias.clamp(min=FORBIDDEN) if finite else self.bias).to(device)

    def surface_ids(self, ids: torch.Tensor) -> torch.Tensor:
        """Replace every reasoning token by its source; other ids stay."""
        if not self.layout.size:
            return ids
        copy_index = (ids - self.layout.standard_size).clamp(0, self.layout.size - 1)
        return torch.where(self.is_reasoning(ids), self._sources(ids.device)[copy_index].to(ids.dtype), ids)

    def over_texts(self, values_BR: torch.Tensor) -> torch.Tensor:
        """`(B, V)`: the sum of the values of each text's ids."""
        standard, end = self.layout.standard_size, self.layout.rows
        if not self.layout.size:
            return values_BR[:, :standard]
        of_copies = values_BR[:, standard:end]
        if self.layout.copies_each_token_once:  # a fifth of the time
            return values_BR[:, :standard] + of_copies
        return values_BR[:, :standard].index_add(1, self._sources(values_BR.device), of_copies)

    def of_ids(self, values_BV: torch.Tensor) -> torch.Tensor:
        """`(B, rows)`: for each id the value of its text."""
        return torch.cat((values_BV, values_BV[:, self._sources(values_BV.device)]), dim=1)

    def ids_of_texts(self, texts_B1: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The ids of some texts, the standard one first: `(B, 1 + most copies)`, and a mask of those that exist."""
        copies_K, starts_V, nth_M = self._by_text(texts_B1.device)
        first_B1, end_B1 = starts_V[texts_B1], starts_V[texts_B1 + 1]
        places_BM = first_B1 + nth_M
        exists_BM = places_BM < end_B1
        copies_BM = copies_K[places_BM.clamp(max=len(copies_K) - 1)]
        return torch.cat((texts_B1, copies_BM), dim=1), torch.cat((exists_BM.new_ones(len(texts_B1), 1), exists_BM), 1)

    def is_reasoning(self, ids: torch.Tensor) -> torch.Tensor:
        return (ids >= self.layout.standard_size) & (ids < self.layout.rows)

    def _sort_by_text(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """All copies in the order of their sources, the first place of each source, and 0, 1, … for its copies."""
        sources = self._sources(device)
        counts = torch.bincount(sources, minlength=self.layout.standard_size)
        starts = torch.cat((counts.new_zeros(1), counts.cumsum(0)))
        nth = torch.arange(int(counts.max()), device=device)
        return self.layout.standard_size + sources.argsort(stable=True), starts, nth

    def _text_blocks(self, region: int, size: int, device: torch.device, with_sources: bool = False) -> list[TextBlock]:
        """The ids that a region allows, in blocks of about `size` ids.

        `with_sources` lists standard tokens with their copies even where the region forbids them.
        """
        layout, allowed_R = self.layout, torch.isfinite(self.bias[region])
        standard, is_open_K = layout.standard_size, allowed_R[layout.standard_size : layout.rows]
        # Multiples of 128 texts, so that rows of logits begin where wide loads may.
        length = max(1, round(size / (1 + int(is_open_K.sum()) / standard)))
        length -= length % 128 if length > 128 else 0
        num_open_V = allowed_R[:standard].float().index_add(0, self._sources(torch.device("cpu")), is_open_K.float())
        log_open_V = num_open_V.clamp(min=1).log()
        standard_tokens, copies = IdGroup(slice(0, standard), slice(0, standard)), _groups_of_copies(layout, is_open_K)
        blocks = []
        for start in range(0, standard, length):
            texts = slice(start, min(start + length, standard))
            has_standard = with_sources or bool(allowed_R[texts].any())
            parts = (group.within(texts) for group in ([standard_tokens] if has_standard else []) + copies)
            if groups := [part.to(device) for part in parts if part is not None]:
                log_open = log_open_V[texts].to(device) if log_open_V[texts].any() else None
                blocks.append(TextBlock(texts, tuple(groups), log_open))
        return blocks


def _bias_table(layout: VocabLayout, rows: int) -> torch.Tensor:
    bias = torch.zeros(2, rows, dtype=torch.float32)
    bias[:, layout.standard_size :] = -math.inf
    copies, sources = open_copies(layout)
    num_copies_V = torch.bincount(sources, minlength=layout.standard_size)
    copied = num_copies_V.nonzero().squeeze(1)
    if layout.mode == "replace":
        bias[THINKING, copied] = -math.inf
        bias[THINKING, copies] = -num_copies_V[sources].float().log() if layout.preserve_odds else 0.0
    else:
        odds_V = -num_copies_V.float().log1p() if layout.preserve_odds else torch.zeros(layout.standard_size)
        bias[THINKING, copied] = odds_V[copied]
        bias[THINKING, copies] = odds_V[sources]
    return bias


def open_copies(layout: VocabLayout) -> tuple[torch.Tensor, torch.Tensor]:
    """The reasoning tokens that may be sampled while thinking, and the source of each. Control ids have none."""
    sources = torch.tensor(layout.source_ids, dtype=torch.long)
    copies = layout.standard_size + torch.arange(layout.size)
    is_open = ~torch.isin(sources, torch.tensor(layout.control_ids, dtype=torch.long))
    return copies[is_open], sources[is_open]


@dataclass(frozen=True)
class IdGroup:
    """Ids of a block, at most one for each text: standard tokens, or copies; a slice where they follow one another.

    `texts` has the index of each id's text in the block, or in the vocabulary; a slice if `ids` is one, else ascending.
    """

    ids: slice | torch.Tensor
    texts: slice | torch.Tensor

    def within(self, texts: slice) -> IdGroup | None:
        """The part of the group in some of its texts; None where it has none of them."""
        if isinstance(self.texts, slice) and isinstance(self.ids, slice):
            start, stop = max(texts.start, self.texts.start), min(texts.stop, self.texts.stop)
            first = self.ids.start - self.texts.start
            ids, places = slice(first + start, first + stop), slice(start - texts.start, stop - texts.start)
            return IdGroup(ids, places) if start < stop else None
        assert isinstance(self.texts, torch.Tensor) and isinstance(self.ids, torch.Tensor)
        start, stop = torch.searchsorted(self.texts, torch.tensor([texts.start, texts.stop])).tolist()
        return IdGroup(self.ids[start:stop], self.texts[start:stop] - texts.start) if start < stop else None

    def find(self, ids_n: torch.Tensor, texts_n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The column of each text, whether the group has that text, and whether it has it under the given id.

        `texts_n` are indices relative to the block; they may lie outside of it.
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

    def add_to_texts(self, total_nv: torch.Tensor, values_nc: torch.Tensor) -> None:
        if isinstance(self.texts, slice):
            total_nv[:, self.texts] += values_nc
        else:
            total_nv.index_add_(1, self.texts, values_nc)

    def to(self, device: torch.device) -> IdGroup:
        if isinstance(self.ids, slice) or isinstance(self.texts, slice):
            return self
        return IdGroup(self.ids.to(device), self.texts.to(device))


@dataclass(frozen=True)
class TextBlock:
    """Consecutive texts, and those of their ids that a region allows; `texts` are their standard tokens.

    `groups` has the standard tokens first, if the block has them, then open copies; a run of copies stored as a slice
    may include forbidden ones. `log_open` has the log of each text's number of open ids; None if no text has two.
    """

    texts: slice
    groups: tuple[IdGroup, ...]
    log_open: torch.Tensor | None = None

    @property
    def size(self) -> int:
        return self.texts.stop - self.texts.start


def _groups_of_copies(layout: VocabLayout, is_open_K: torch.Tensor) -> list[IdGroup]:
    """Runs of open copies with consecutive sources, and the other open copies in groups of different texts."""
    standard, groups = layout.standard_size, list[IdGroup]()
    sources, left = torch.tensor(layout.source_ids, dtype=torch.long), is_open_K.clone()
    breaks = (sources[1:] != sources[:-1] + 1).nonzero().squeeze(1) + 1
    for start, end in pairwise([0, *breaks.tolist(), len(sources)]):
        if end - start >= _SHORTEST_RUN and bool(is_open_K[start:end].any()):
            first = int(sources[start])
            groups.append(IdGroup(slice(standard + start, standard + end), slice(first, first + end - start)))
            left[start:end] = False
    nth_copy = torch.tensor(layout.copy_indices, dtype=torch.long)
    for nth in nth_copy[left].unique().tolist():
        ks = (left & (nth_copy == nth)).nonzero().squeeze(1)
        ks = ks[sources[ks].argsort()]
        groups.append(IdGroup(standard + ks, sources[ks]))
    return groups
