"""How long a completion thinks and answers, told by its ids; the same regions as `vocab.regions`, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlvr_vocab.vocab.layout import VocabLayout


@dataclass(frozen=True)
class RegionLengths:
    """Tokens of a completion: chosen while thinking, how many of those are reasoning tokens, and while answering."""

    thinking: int
    reasoning: int
    answering: int


def region_lengths(prompt_ids: Sequence[int], completion_ids: Sequence[int], layout: VocabLayout) -> RegionLengths:
    """Count the tokens of each region: the last think tag in front of a token, since its turn began, decides."""
    turn = list(layout.turn_ids)
    ids = [*prompt_ids, *completion_ids]
    thinks, thinking, reasoning = False, 0, 0
    for position, token in enumerate(ids):
        if position >= len(prompt_ids):
            thinking += thinks
            reasoning += token >= layout.standard_size
        if turn and token == turn[-1] and ids[max(0, position + 1 - len(turn)) : position + 1] == turn:
            thinks = False
        elif token == layout.think_open_id:
            thinks = True
        elif token == layout.think_close_id:
            thinks = False
    return RegionLengths(thinking, reasoning, len(completion_ids) - thinking)


def ended_by_itself(completion_ids: Sequence[int], layout: VocabLayout) -> bool:
    """Whether the last token is one that ends a turn; else the completion was cut off at its longest."""
    tags = (layout.think_open_id, layout.think_close_id)
    return bool(completion_ids) and completion_ids[-1] in layout.control_ids and completion_ids[-1] not in tags
