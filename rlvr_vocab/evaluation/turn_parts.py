"""What of an assistant's turn is thinking and what is answer, told by its ids."""

from __future__ import annotations

import torch

from rlvr_vocab.vocab.chat import prefilled_ids
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import ANSWERING, THINKING, scored_regions


def turn_parts(layout: VocabLayout, prompt_ids: list[int], completion_ids: list[int]) -> tuple[list[int], list[int]]:
    """Ids of the thinking and of the answer, what the template prefilled of the turn included, think tags left out."""
    ids = [*prompt_ids, *completion_ids]
    regions = scored_regions(torch.tensor([ids]), layout)[0].tolist()
    tags = (layout.think_open_id, layout.think_close_id)
    parts: dict[int, list[int]] = {THINKING: [], ANSWERING: []}
    for position in range(len(prompt_ids) - len(prefilled_ids(prompt_ids, layout)), len(ids)):
        if ids[position] not in tags:
            parts[regions[position]].append(ids[position])
    return parts[THINKING], parts[ANSWERING]
