"""The region policy: the one table by which a model with a reasoning vocabulary is sampled, scored and served.

log p(next | context) = log_softmax(logits / temperature + bias[region(context)])
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch

from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import ANSWERING, THINKING

# What forbids inside sums: -inf would turn entropy's 0·log 0 into NaN, and its gradient with it. exp() of it is 0.
FORBIDDEN = -1e30
# Forbidden stretches shorter than this are computed and masked: a matrix product in few pieces beats many.
_SHORTEST_GAP = 1024


class RegionPolicy:
    """Bias by region, and which rows of the output embedding each region needs at all.

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
        self.finite_bias = self.bias.clamp(min=FORBIDDEN)
        self.row_ranges = {region: open_ranges(self.bias[region]) for region in (ANSWERING, THINKING)}
        self._on_device = lru_cache(maxsize=8)(self._copy)

    def bias_on(self, device: torch.device, *, finite: bool = False) -> torch.Tensor:
        """The table on a device; `finite` has `FORBIDDEN` in place of `-inf`."""
        return self._on_device(str(device), finite)

    def surface_ids(self, ids: torch.Tensor) -> torch.Tensor:
        """Replace every reasoning token by its source; other ids stay."""
        sources = torch.tensor(self.layout.source_ids, dtype=ids.dtype, device=ids.device)
        if not len(sources):
            return ids
        copy_index = (ids - self.layout.standard_size).clamp(0, len(sources) - 1)
        return torch.where(self.is_reasoning(ids), sources[copy_index], ids)

    def is_reasoning(self, ids: torch.Tensor) -> torch.Tensor:
        return (ids >= self.layout.standard_size) & (ids < self.layout.rows)

    def _copy(self, device: str, finite: bool) -> torch.Tensor:
        return (self.finite_bias if finite else self.bias).to(device)


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


def open_ranges(bias_V: torch.Tensor, shortest_gap: int = _SHORTEST_GAP) -> list[tuple[int, int]]:
    """Row ranges that hold every id a region allows, leaving out forbidden stretches worth leaving out."""
    allowed = torch.isfinite(bias_V).nonzero().squeeze(1)
    breaks = ((allowed[1:] - allowed[:-1]) > shortest_gap).nonzero().squeeze(1)
    starts = torch.cat([allowed[:1], allowed[breaks + 1]]).tolist()
    ends = torch.cat([allowed[breaks], allowed[-1:]]).tolist()
    return [(start, end + 1) for start, end in zip(starts, ends, strict=True)]
