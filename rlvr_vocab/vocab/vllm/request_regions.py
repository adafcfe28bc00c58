"""Which region each request of a vLLM batch is in, kept up to date from what vLLM has committed.

`BatchRegions` serves the V1 runner, which shares lists of ids with its processors; `SlotRegions` serves Model Runner
V2, which keeps the ids on the device. Nothing here imports vLLM: its objects are lists and tensors by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import ANSWERING, THINKING, RegionTracker, after_last_ids, region_of_next

# What vLLM's asynchronous scheduling writes for a token that was sampled but has not reached the host yet.
UNKNOWN = -1
# Below this temperature vLLM takes the most likely token.
GREEDY_BELOW = 1e-5


class RequestRegion:
    """The region in which one request chooses its next token.

    Attributes:
        temperature: what vLLM divides this request's logits by; 0.0 for a greedy one.
    """

    def __init__(
        self, layout: VocabLayout, prompt_ids: Sequence[int], output_ids: list[int], temperature: float
    ) -> None:
        """
        Args:
            prompt_ids: the request's prompt.
            output_ids: vLLM's own list of what the request has generated, which grows and is mended in place.
            temperature: as the request gives it.
        """
        self.temperature = 0.0 if temperature < GREEDY_BELOW else temperature
        self._output, self._taken = output_ids, 0
        self._prompt = RegionTracker(layout, prompt_ids)
        self._tracker = self._prompt.copy()
        self.advance()

    def advance(self) -> None:
        """Take over the tokens committed since the last call, up to the first that is not known yet."""
        if len(self._output) < self._taken:  # vLLM takes tokens back after a failed load of the cache
            self._tracker, self._taken = self._prompt.copy(), 0
        self._taken = self._follow(self._tracker)

    def region(self) -> int:
        """Region of the next token, with tokens that became known since `advance`; changes nothing.

        Raises:
            RuntimeError: a token that decides the region is not known.
        """
        if self._taken == len(self._output):
            return self._tracker.region
        tracker = self._tracker.copy()
        if self._follow(tracker) < len(self._output):
            raise RuntimeError(
                "vLLM did not tell the region policy which token it sampled last: start it with --no-async-scheduling"
            )
        return tracker.region

    def _follow(self, tracker: RegionTracker) -> int:
        """Add what is known of the output to a tracker that has `_taken` tokens of it; how many it has then."""
        position, output = self._taken, self._output
        while position < len(output) and (token := output[position]) != UNKNOWN:
            tracker.add(token)
            position += 1
        return position


class BatchRegions:
    """The requests of a batch by their row, through vLLM's additions, removals and moves."""

    def __init__(self, layout: VocabLayout) -> None:
        self._layout = layout
        self._requests: dict[int, RequestRegion] = {}

    def update(
        self,
        removed: Iterable[int],
        added: Iterable[tuple[int, float, Sequence[int], list[int]]],
        moved: Iterable[tuple[int, int, bool]],
    ) -> None:
        """Follow one change of the batch, in the order that vLLM prescribes.

        Args:
            removed: rows whose request is gone.
            added: row, temperature, prompt ids and the running list of output ids; the row may be taken.
            moved: from, to, and whether the two rows change places.
        """
        for row in removed:
            self._requests.pop(row, None)
        for row, temperature, prompt_ids, output_ids in added:
            self._requests[row] = RequestRegion(self._layout, prompt_ids, output_ids, temperature)
        for source, target, is_swap in moved:
            request, other = self._requests.pop(source, None), self._requests.pop(target, None)
            if request is not None:
                self._requests[target] = request
            if is_swap and other is not None:
                self._requests[source] = other

    def advance(self) -> None:
        for request in self._requests.values():
            request.advance()

    def rows(self) -> dict[int, list[tuple[int, float]]]:
        """For each region, the rows in it with their temperatures, as things stand now."""
        rows: dict[int, list[tuple[int, float]]] = {ANSWERING: [], THINKING: []}
        for row, request in self._requests.items():
            rows[request.region()].append((row, request.temperature))
        return rows


# Shapes: S request slots, s new ones, T positions.


class SlotRegions:
    """The requests of Model Runner V2 by their slot, followed on the device without asking the host.

    A request keeps its slot while it runs. A slot's region is read from all of its ids when a request enters, and from
    the last of them at each step after that. Looking twice at the same last token changes nothing, so that it does not
    matter which slots a step has scheduled.

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
