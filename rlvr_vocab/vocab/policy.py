"""The region policy: the one table by which a model with a reasoning vocabulary is sampled, scored and served.

log p(next | context) = log_softmax(logits / temperature + bias[region(context)])
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch

from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import THINKING
from rlvr_vocab.vocab.text_blocks import TextBlock, text_blocks

# What forbids inside sums: -inf would turn entropy's 0·log 0 into NaN, and its gradient with it. exp() of it is 0.
FORBIDDEN = -1e30


class RegionPolicy:
    """Bias by region, and which rows of the output embedding each region needs at all, in blocks.

    Attributes:
        layout: the vocabulary that the policy follows.
        bias: `(2, rows)` float32 on the CPU, added to float32 logits after softcap and temperature; row
            `ANSWERING`, row `THINKING`; `-inf` forbids an id.
    """

    def __init__(self, layout: VocabLayout, rows: int | None = None) -> None:
        """
        Args:
            rows: rows of the model's output embedding where there are more than the layout's (padding that a
                loader added); those are forbidden.
        """
        self.layout = layout
        self.bias = _bias_table(layout, max(rows or 0, layout.rows))
        self._on_device = lru_cache(maxsize=8)(self._copy)
        self._sources = lru_cache(maxsize=8)(
            lambda device: torch.tensor(layout.source_ids, dtype=torch.long, device=device)
        )
        self._by_text = lru_cache(maxsize=8)(self._sort_by_text)
        self._copies_all = layout.source_ids == tuple(range(layout.standard_size))
        self.text_blocks = lru_cache(maxsize=32)(self._text_blocks)

    def bias_on(self, device: torch.device, *, finite: bool = False) -> torch.Tensor:
        """The table on a device; `finite` has `FORBIDDEN` in place of `-inf`."""
        return self._on_device(str(device), finite)

    def surface_ids(self, ids: torch.Tensor) -> torch.Tensor:
        """Replace every reasoning token by its source; other ids stay."""
        if not self.layout.size:
            return ids
        copy_index = (ids - self.layout.standard_size).clamp(0, self.layout.size - 1)
        return torch.where(self.is_reasoning(ids), self._sources(ids.device)[copy_index].to(ids.dtype), ids)

    def over_texts(self, values_BR: torch.Tensor) -> torch.Tensor:
        """`(B, V)`: what the ids of each text have together."""
        standard, end = self.layout.standard_size, self.layout.rows
        if not self.layout.size:
            return values_BR[:, :standard]
        of_copies = values_BR[:, standard:end]
        if of_copies.size(1) == standard and self._copies_all:  # a fifth of the time
            return values_BR[:, :standard] + of_copies
        return values_BR[:, :standard].index_add(1, self._sources(values_BR.device), of_copies)

    def ids_of_texts(self, texts_B1: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The ids of some texts, the standard one first: `(B, 1 + most copies)`, and which of them there are."""
        copies_K, starts_V, nth_M = self._by_text(texts_B1.device)
        first_B1, end_B1 = starts_V[texts_B1], starts_V[texts_B1 + 1]
        places_BM = first_B1 + nth_M
        exists_BM = places_BM < end_B1
        copies_BM = copies_K[places_BM.clamp(max=len(copies_K) - 1)]
        return torch.cat((texts_B1, copies_BM), dim=1), torch.cat((exists_BM.new_ones(len(texts_B1), 1), exists_BM), 1)

    def is_reasoning(self, ids: torch.Tensor) -> torch.Tensor:
        return (ids >= self.layout.standard_size) & (ids < self.layout.rows)

    def _sort_by_text(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """All copies in the order of their sources, where those of each begin, and 0, 1, … up to the most of a text."""
        sources = self._sources(device)
        counts = torch.bincount(sources, minlength=self.layout.standard_size)
        starts = torch.cat((counts.new_zeros(1), counts.cumsum(0)))
        nth = torch.arange(int(counts.max()), device=device)
        return self.layout.standard_size + sources.argsort(stable=True), starts, nth

    def _text_blocks(self, region: int, size: int, device: torch.device) -> list[TextBlock]:
        """What a region allows, in blocks of about `size` ids."""
        return text_blocks(self.layout, torch.isfinite(self.bias[region]), size, device)

    def _copy(self, device: str, finite: bool) -> torch.Tensor:
        return (self.bias.clamp(min=FORBIDDEN) if finite else self.bias).to(device)


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
