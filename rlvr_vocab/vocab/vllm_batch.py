"""The region policy over a vLLM batch: the region of each request, and the bias on its logits.

`RequestRegion` follows a request of the V1 runner, which shares lists of ids with its processors; `SlotRegions` follows
Model Runner V2, which keeps the ids on the device. Nothing here imports vLLM.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import THINKING, RegionTracker, after_last_ids, region_of_next
from rlvr_vocab.vocab.truncation import Truncation

# vLLM's asynchronous scheduling writes this for a token that was sampled but has not reached the host yet.
UNKNOWN = -1
# Below this temperature vLLM takes the most likely token.
GREEDY_BELOW = 1e-5
_ROWS_AT_ONCE = 16

# Shapes: B rows of logits, V columns, S request slots, s new ones, T positions.


class RequestRegion:
    """The region in which one request chooses its next token.

    `output_ids` is vLLM's own list of the request's generated ids, which it extends and corrects in place.
    `temperature` is vLLM's divisor of this request's logits; 0.0 for a greedy one, which is not truncated.
    """

    def __init__(
        self,
        layout: VocabLayout,
        prompt_ids: Sequence[int],
        output_ids: list[int],
        temperature: float,
        truncation: Truncation | None = None,
    ) -> None:
        self.temperature = 0.0 if temperature < GREEDY_BELOW else temperature
        self.truncation = truncation if truncation and self.temperature else None
        self._layout, self._prompt, self._output = layout, prompt_ids, output_ids
        self._tracker, self._taken = RegionTracker(layout, prompt_ids), 0

    def region(self) -> int:
        """Region of the next token; raises RuntimeError where it depends on an unknown token."""
        if len(self._output) < self._taken:  # vLLM takes tokens back after a failed load of the cache
            self._tracker, self._taken = RegionTracker(self._layout, self._prompt), 0
        for token in self._output[self._taken :]:
            if token == UNKNOWN:
                raise RuntimeError(
                    "vLLM did not give the region policy the token that it sampled last: start it with "
                    "--no-async-scheduling"
                )
            self._tracker.add(token)
            self._taken += 1
        return self._tracker.region


class SlotRegions:
    """The requests of Model Runner V2 by slot, tracked on the device without synchronising with the host.

    A slot's region is computed from all of its ids when a request enters, and from the last ids at each later step.
    Reading the same last token twice changes nothing, so slots that a step does not schedule need no special case.
    `state` is the runner's `RequestState` or `ProcRequestState`. `thinking_S` says whether the slot's next token is
    chosen while thinking; meaningless for a slot without a request. `temperatures_S` is float32, 0 if greedy.
    `truncated_S` has for each truncation in use the slots that it acts on.
    """

    def __init__(self, layout: VocabLayout, state: Any) -> None:
        self._layout, self._state = layout, state
        self.thinking_S = torch.zeros(state.max_num_reqs, dtype=torch.bool, device=state.device)
        self.temperatures_S = torch.zeros(state.max_num_reqs, dtype=torch.float32, device=state.device)
        self.truncated_S: dict[Truncation, torch.Tensor] = {}
        self._new: dict[int, float] = {}
        self._truncations: dict[int, Truncation] = {}

    def add(self, slot: int, temperature: float, truncation: Truncation | None = None) -> None:
        self._new[slot] = 0.0 if temperature < GREEDY_BELOW else temperature
        self._truncations.pop(slot, None)
        if truncation and self._new[slot]:
            self._truncations[slot] = truncation

    def refresh(self) -> None:
        """Once for each step, after the runner has written the tokens sampled before."""
        ids_ST, lengths_S = self._state.all_token_ids.gpu, self._state.total_len.gpu
        self.thinking_S = after_last_ids(self.thinking_S, ids_ST, lengths_S, self._layout)
        if not self._new:
            return
        device, lengths_s = self._state.device, self._state.prefill_len.np[list(self._new)]
        slots_s = torch.tensor(list(self._new), device=device)
        written_sT = torch.arange(int(lengths_s.max()), device=device) < torch.from_numpy(lengths_s).to(device)[:, None]
        ids_sT = torch.where(written_sT, ids_ST[slots_s, : written_sT.size(1)], UNKNOWN)
        self.thinking_S[slots_s] = region_of_next(ids_sT, self._layout) == THINKING
        self.temperatures_S[slots_s] = torch.tensor(list(self._new.values()), device=device)
        self._new.clear()
        self.truncated_S = rows_by_truncation(map(self._truncations.get, range(self._state.max_num_reqs)), device)


class LogitsBias:
    """Adds `temperature × bias[region]` to `(B, V)` float32 logits in place; vLLM divides by the temperature after it.

    For greedy rows (temperature 0) it only forbids ids; the finite biases are for sampling.
    """

    def __init__(self, policy: RegionPolicy, device: torch.device) -> None:
        self._policy = policy
        forbids_2V = policy.bias.masked_fill(policy.bias.isfinite(), 0.0)
        none_1V = torch.zeros_like(policy.bias[:1])
        # Three rows for greedy and three for sampling, by region; the last of each three is for no region.
        self._tables_RV = torch.cat((forbids_2V, none_1V, policy.bias, none_1V)).to(device)

    def add(self, logits: torch.Tensor, regions_B: torch.Tensor, temperatures_B: torch.Tensor) -> None:
        """Add the bias of each row's region; a row of region -1 is unchanged."""
        is_greedy_B = temperatures_B == 0
        tables_B = regions_B % 3 + torch.where(is_greedy_B, 0, 3)
        scales_B1 = torch.where(is_greedy_B, 1.0, temperatures_B).unsqueeze(1)
        for start in range(0, len(logits), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            logits[rows].addcmul_(self._tables_RV[tables_B[rows]], scales_B1[rows])

    def truncate(
        self, logits: torch.Tensor, temperatures_B: torch.Tensor, truncated_B: Mapping[Truncation, torch.Tensor]
    ) -> None:
        """Forbid the ids of the texts that truncations drop, each in its rows; after `add`."""
        size = self._policy.layout.rows
        for truncation, acts_B in truncated_B.items():
            for start in range(0, len(logits), _ROWS_AT_ONCE):
                rows = slice(start, start + _ROWS_AT_ONCE)
                divisors_B1 = temperatures_B[rows, None].masked_fill(~acts_B[rows, None], 1.0)
                drops_BR = truncation.drop_mask_of_ids(logits[rows, :size] / divisors_B1, self._policy)
                logits[rows, :size].masked_fill_(drops_BR & acts_B[rows, None], -torch.inf)


def rows_by_truncation(of_rows: Iterable[Truncation | None], device: torch.device) -> dict[Truncation, torch.Tensor]:
    """For each truncation the rows, as a mask, that it acts on."""
    truncations = list(of_rows)
    distinct = {each for each in truncations if each}
    return {one: torch.tensor([each == one for each in truncations], device=device) for one in distinct}
