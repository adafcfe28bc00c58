"""Which region each request slot of vLLM's Model Runner V2 is in, kept on the device without asking the host.

A request keeps its slot while it runs, and the runner keeps every slot's committed ids on the device. A slot's region
is read from all of them when a request enters, and from the last of them at each step after that. Looking twice at
the same last token changes nothing, so that it does not matter which slots a step has scheduled.
"""

from __future__ import annotations

from typing import Any

import torch

from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import THINKING, after_last_ids, region_of_next
from rlvr_vocab.vocab.vllm.requests import GREEDY_BELOW, UNKNOWN

# Shapes: S request slots, s new ones, T positions.


class SlotRegions:
    """
    Attributes:
        thinking_S: whether the slot's next token is chosen while thinking; meaningless for a slot without a request.
        temperatures_S: float32; 0 for a greedy request.
    """

    def __init__(self, layout: VocabLayout, state: Any) -> None:
        """
        Args:
            state: the runner's `LogitsProcRequestState`.
        """
        self._layout, self._state = layout, state
        self.thinking_S = torch.zeros(state.max_num_reqs, dtype=torch.bool, device=state.device)
        self.temperatures_S = torch.zeros(state.max_num_reqs, dtype=torch.float32, device=state.device)
        self._new: dict[int, float] = {}

    def add(self, slot: int, temperature: float) -> None:
        self._new[slot] = 0.0 if temperature < GREEDY_BELOW else temperature

    def refresh(self) -> None:
        """Once for each step, after the runner has written the tokens sampled before."""
        ids_ST, lengths_S = self._state.all_token_ids.gpu, self._state.total_len.gpu
        self.thinking_S = after_last_ids(self.thinking_S, ids_ST, lengths_S, self._layout)
        if self._new:
            self._read_new_slots(list(self._new), list(self._new.values()))
            self._new.clear()

    def _read_new_slots(self, slots: list[int], temperatures: list[float]) -> None:
        device = self._state.device
        length_s = torch.from_numpy(self._state.prefill_len.np[slots]).to(device)
        slots_s = torch.tensor(slots, device=device)
        longest = int(self._state.prefill_len.np[slots].max())
        ids_sT = self._state.all_token_ids.gpu[slots_s, :longest]
        written_sT = torch.arange(longest, device=device) < length_s.unsqueeze(1)
        ids_sT = torch.where(written_sT, ids_sT, UNKNOWN)
        self.thinking_S[slots_s] = region_of_next(ids_sT, self._layout) == THINKING
        self.temperatures_S[slots_s] = torch.tensor(temperatures, device=device)
