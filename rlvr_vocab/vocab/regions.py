"""Which positions of a sequence are thinking and which are answering, as a pure function of its ids."""

from __future__ import annotations

import torch

from rlvr_vocab.vocab.layout import VocabLayout

ANSWERING, THINKING = 0, 1
_NO_EVENT, _ANSWER_EVENT, _THINK_EVENT = 0, 1, 2

# Shapes: B sequences, T positions.


def regions_after(ids_BT: torch.Tensor, layout: VocabLayout) -> torch.Tensor:
    """Region in which the token *after* each position is chosen.

    The last event at or before a position decides: an opening tag begins thinking; a closing tag, or the end of
    the ids that open an assistant's turn, begins answering. Before any event a sequence is answering.

    Args:
        ids_BT: token ids, `(B, T)`, any integer type; padding may stand anywhere.
        layout: names the tags and the ids that open a turn.

    Returns:
        `(B, T)` int64, `THINKING` or `ANSWERING`.
    """
    events_BT = _events(ids_BT, layout)
    positions_T = torch.arange(ids_BT.size(1), device=ids_BT.device)
    last_event_BT = torch.where(events_BT != _NO_EVENT, positions_T, 0).cummax(dim=1).values
    return (events_BT.gather(1, last_event_BT) == _THINK_EVENT).long()


def region_of_next(ids_BT: torch.Tensor, layout: VocabLayout) -> torch.Tensor:
    """`regions_after` at the last position alone: `(B,)` int64, what a sampler asks at each step."""
    events_BT = _events(ids_BT, layout)
    positions_T = torch.arange(ids_BT.size(1), device=ids_BT.device)
    last_event_B1 = torch.where(events_BT != _NO_EVENT, positions_T, 0).amax(dim=1, keepdim=True)
    return (events_BT.gather(1, last_event_B1) == _THINK_EVENT).long().squeeze(1)


def scored_regions(ids_BT: torch.Tensor, layout: VocabLayout) -> torch.Tensor:
    """Region in which each token itself was chosen: `(B, T)`; the first position has no context and is answering."""
    regions_BT = torch.full_like(ids_BT, ANSWERING, dtype=torch.long)
    regions_BT[:, 1:] = regions_after(ids_BT, layout)[:, :-1]
    return regions_BT


def last_turn_start(ids: list[int], layout: VocabLayout) -> int:
    """Index of the first id of the current assistant turn: 0 where no turn was opened."""
    turn = list(layout.turn_ids)
    if turn:
        for start in range(len(ids) - len(turn), -1, -1):
            if ids[start : start + len(turn)] == turn:
                return start + len(turn)
    return 0


def _events(ids_BT: torch.Tensor, layout: VocabLayout) -> torch.Tensor:
    events_BT = torch.where(ids_BT == layout.think_close_id, _ANSWER_EVENT, _NO_EVENT)
    events_BT = torch.where(ids_BT == layout.think_open_id, _THINK_EVENT, events_BT)
    length = len(layout.turn_ids)
    if 0 < length <= ids_BT.size(1):
        opened = ids_BT[:, length - 1 :] == layout.turn_ids[-1]
        for offset, token in enumerate(layout.turn_ids[:-1]):
            opened = opened & (ids_BT[:, offset : ids_BT.size(1) - length + 1 + offset] == token)
        events_BT[:, length - 1 :].masked_fill_(opened, _ANSWER_EVENT)
    return events_BT
