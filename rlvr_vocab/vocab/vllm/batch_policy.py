"""The region policy over a vLLM batch: the region of each request, and the bias on its logits.

`BatchRegions` follows the V1 runner, which shares lists of ids with its processors; `SlotRegions` follows Model Runner
V2, which keeps the ids on the device. Nothing here imports vLLM.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import ANSWERING, THINKING, RegionTracker, after_last_ids, region_of_next

# vLLM's asynchronous scheduling writes this for a token that was sampled but has not reached the host yet.
UNKNOWN = -1
# Below this temperature vLLM takes the most likely token.
GREEDY_BELOW = 1e-5
# Runs of equal bias at least this long are slices of the logits; shorter ones are gathered by their ids.
_SHORTEST_SLICE = 64

# Shapes: B rows of logits, V columns, S request slots, s new ones, T positions.


class RequestRegion:
    """The region in which one request chooses its next token.

    Attributes:
        temperature: vLLM's divisor of this request's logits; 0.0 for a greedy one.
    """

    def __init__(
        self, layout: VocabLayout, prompt_ids: Sequence[int], output_ids: list[int], temperature: float
    ) -> None:
        """
        Args:
            output_ids: vLLM's own list of the request's generated ids, which it extends and corrects in place.
        """
        self.temperature = 0.0 if temperature < GREEDY_BELOW else temperature
        self._output, self._taken = output_ids, 0
        self._prompt = RegionTracker(layout, prompt_ids)
        self._tracker = self._prompt.copy()
        self.advance()

    def advance(self) -> None:
        """Take over the tokens committed since the last call, up to the first unknown one."""
        if len(self._output) < self._taken:  # vLLM takes tokens back after a failed load of the cache
            self._tracker, self._taken = self._prompt.copy(), 0
        self._taken = self._follow(self._tracker)

    def region(self) -> int:
        """Region of the next token, with tokens that became known since `advance`; changes nothing.

        Raises:
            RuntimeError: a token that decides the region is unknown.
        """
        if self._taken == len(self._output):
            return self._tracker.region
        tracker = self._tracker.copy()
        if self._follow(tracker) < len(self._output):
            raise RuntimeError(
                "vLLM did not give the region policy the token that it sampled last: start it with "
                "--no-async-scheduling"
            )
        return tracker.region

    def _follow(self, tracker: RegionTracker) -> int:
        """Add the known output to a tracker that has `_taken` tokens of it; returns the number it has then."""
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

    def rows(self) -> dict[int, tuple[int, float]]:
        """Region and temperature of each row that has a request."""
        return {row: (request.region(), request.temperature) for row, request in self._requests.items()}


class SlotRegions:
    """The requests of Model Runner V2 by their slot, followed on the device without asking the host.

    A request keeps its slot while it runs. A slot's region is read from all of its ids when a request enters, and from
    the last of them at each later step. Reading one last token twice changes nothing, so it does not matter which slots
    a step has scheduled.

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


@dataclass(frozen=True)
class _Columns:
    """The bias of one region: columns to forbid, and columns to shift by a number of nats."""

    forbidden_slices: list[slice]
    forbidden_ids: torch.Tensor
    shifted_slices: list[tuple[slice, float]]
    shifted_ids: torch.Tensor
    shifts: torch.Tensor


class LogitsBias:
    """Adds `temperature × bias[region]` to `(B, V)` float32 logits in place.

    vLLM calls its processors before the temperature, hence the factor. A constant on a whole row changes no
    probability: each region's most frequent bias is taken off beforehand, so that few columns remain to be shifted.
    Greedy rows (temperature 0) get the forbids alone: odds between copies are for sampling.
    """

    def __init__(self, policy: RegionPolicy, device: torch.device) -> None:
        self._width = policy.bias.size(1)
        self._columns = {region: _columns(policy.bias[region], device) for region in (ANSWERING, THINKING)}

    def add(self, logits: torch.Tensor, regions_B: torch.Tensor, temperatures_B: torch.Tensor) -> None:
        """Add the bias of each row's region; a row of another region, such as -1, stays.

        Everything is a mask on the device: asking which rows are in which region would make the host wait.
        """
        if logits.size(1) != self._width:
            raise ValueError(f"the policy describes {self._width} rows, vLLM's logits have {logits.size(1)}")
        for region, columns in self._columns.items():
            here_B1 = (regions_B == region).unsqueeze(1)
            for block in columns.forbidden_slices:
                logits[:, block].masked_fill_(here_B1, -math.inf)
            if len(columns.forbidden_ids):
                some = logits[:, columns.forbidden_ids].masked_fill_(here_B1, -math.inf)
                logits.index_copy_(1, columns.forbidden_ids, some)
            scale_B1 = torch.where(here_B1, temperatures_B.unsqueeze(1), 0.0)
            for block, shift in columns.shifted_slices:
                logits[:, block].add_(scale_B1 * shift)
            if len(columns.shifted_ids):
                logits.index_add_(1, columns.shifted_ids, scale_B1 * columns.shifts)


def _columns(bias_V: torch.Tensor, device: torch.device) -> _Columns:
    finite_v = bias_V[torch.isfinite(bias_V)]
    shift_V = bias_V - finite_v.mode().values
    values, lengths = shift_V.unique_consecutive(return_counts=True)
    ends = lengths.cumsum(0)
    runs = list(zip((ends - lengths).tolist(), ends.tolist(), values.tolist(), strict=True))
    forbidden = [run for run in runs if run[2] == -math.inf]
    shifted = [run for run in runs if math.isfinite(run[2]) and run[2] != 0.0]
    forbidden_ids, shifted_ids = _short(forbidden), _short(shifted)
    return _Columns(
        forbidden_slices=[slice(start, end) for start, end, _ in _long(forbidden)],
        forbidden_ids=forbidden_ids.to(device),
        shifted_slices=[(slice(start, end), value) for start, end, value in _long(shifted)],
        shifted_ids=shifted_ids.to(device),
        shifts=shift_V[shifted_ids].to(device),
    )


def _long(runs: list[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
    return [run for run in runs if run[1] - run[0] >= _SHORTEST_SLICE]


def _short(runs: list[tuple[int, int, float]]) -> torch.Tensor:
    ids = [id_ for start, end, _ in runs if end - start < _SHORTEST_SLICE for id_ in range(start, end)]
    return torch.tensor(ids, dtype=torch.long)
