"""The region (thinking or answering) of each position of a sequence, as a pure function of its ids.

The last event before a token decides: an opening tag begins thinking; a closing tag, or the end of the ids that open
an assistant turn, begins answering. Before any event the region is answering. `regions_after` reads whole tensors;
`after_last_ids` and `RegionTracker` follow growing sequences.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rlvr_vocab.vocab.layout import VocabLayout

if TYPE_CHECKING:  # seconds to import, and `RegionTracker` needs none of it
    import torch

ANSWERING, THINKING = 0, 1
_NO_EVENT, _ANSWER_EVENT, _THINK_EVENT = 0, 1, 2

# Shapes: B sequences, T positions.


class RegionTracker:
    """Follows one sequence token by token; `region`, `THINKING` or `ANSWERING`, is that of the next token."""

    def __init__(self, layout: VocabLayout, ids: Iterable[int] = ()) -> None:
        self.region = ANSWERING
        self._open_id, self._close_id = layout.think_open_id, layout.think_close_id
        self._turn = deque(layout.turn_ids)
        self._recent = deque[int](maxlen=len(layout.turn_ids))
        for token in ids:
            self.add(token)

    def add(self, token: int) -> None:
        self._recent.append(token)
        if token == self._close_id or (self._turn and self._recent == self._turn):
            self.region = ANSWERING
        elif token == self._open_id:
            self.region = THINKING


def regions_after(ids_BT: torch.Tensor, layout: VocabLayout) -> torch.Tensor:
    """`(B, T)` int64: region in which the token *after* each position is chosen; padding may be anywhere."""
    import torch

    events_BT = (ids_BT == layout.think_close_id).long() * _ANSWER_EVENT
    events_BT.masked_fill_(ids_BT == layout.think_open_id, _THINK_EVENT)
    length = len(layout.turn_ids)
    if 0 < length <= ids_BT.size(1):
        opened = ids_BT[:, length - 1 :] == layout.turn_ids[-1]
        for offset, token in enumerate(layout.turn_ids[:-1]):
            opened = opened & (ids_BT[:, offset : ids_BT.size(1) - length + 1 + offset] == token)
        events_BT[:, length - 1 :].masked_fill_(opened, _ANSWER_EVENT)
    positions_BT = torch.arange(events_BT.size(1), device=events_BT.device) * (events_BT != _NO_EVENT)
    return (events_BT.gather(1, positions_BT.cummax(dim=1).values) == _THINK_EVENT).long()


def region_of_next(ids_BT: torch.Tensor, layout: VocabLayout) -> torch.Tensor:
    """`regions_after` at the last position alone: `(B,)` int64, the region of the token that is sampled next."""
    return regions_after(ids_BT, layout)[:, -1]


def after_last_ids(
    thinking_B: torch.Tensor, ids_BT: torch.Tensor, lengths_B: torch.Tensor, layout: VocabLayout
) -> torch.Tensor:
    """Whether the next token of each sequence is chosen while thinking; reading one last id twice changes nothing.

    `thinking_B` is the result before the last id. `ids_BT` past a sequence's length, which may be 0, are ignored.
    """
    last_B1 = (lengths_B.long() - 1).clamp(min=0).unsqueeze(1)
    token_B = ids_BT.gather(1, last_B1).squeeze(1)
    thinking_B = (thinking_B | (token_B == layout.think_open_id)) & (token_B != layout.think_close_id)
    if layout.turn_ids:
        opens_B = lengths_B >= len(layout.turn_ids)
        for back, token in enumerate(reversed(layout.turn_ids)):  # one by one: nothing has to reach the device first
            opens_B = opens_B & (ids_BT.gather(1, (last_B1 - back).clamp(min=0)).squeeze(1) == token)
        thinking_B = thinking_B & ~opens_B
    return thinking_B


def scored_regions(ids_BT: torch.Tensor, layout: VocabLayout) -> torch.Tensor:
    """Region in which each token itself was chosen: `(B, T)`; the first position has no context and is answering."""
    regions_BT = regions_after(ids_BT, layout).roll(1, dims=1)
    regions_BT[:, :1] = ANSWERING
    return regions_BT
