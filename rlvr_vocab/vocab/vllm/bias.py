"""The policy's bias added to a batch of logits in place, touching no column that a region leaves alone.

vLLM calls its processors before the temperature, so what is added is `temperature × bias`. A constant added to a
whole row changes no probability: each region's most frequent bias is taken off beforehand, and what is left to add
are a few columns, or a block of them to forbid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import ANSWERING, THINKING

# Shapes: B rows of logits, V columns, v some of them.
# Runs of equal bias at least this long are slices of the logits; shorter ones are gathered by their ids.
_SHORTEST_SLICE = 64


@dataclass(frozen=True)
class _Columns:
    """What one region does to logits: columns to forbid, and columns to shift by a number of nats."""

    forbidden_slices: list[slice]
    forbidden_ids: torch.Tensor
    shifted_slices: list[tuple[slice, float]]
    shifted_ids: torch.Tensor
    shifts: torch.Tensor


class LogitsBias:
    """Adds `temperature × bias[region]` to `(B, V)` float32 logits.

    Greedy rows (temperature 0) get the forbids alone: odds between copies are for sampling.
    """

    def __init__(self, policy: RegionPolicy, device: torch.device) -> None:
        self.width = policy.bias.size(1)
        self._columns = {region: _columns(policy.bias[region], device) for region in (ANSWERING, THINKING)}

    def check_width(self, logits: torch.Tensor) -> None:
        if logits.size(1) != self.width:
            raise ValueError(f"the policy describes {self.width} rows, vLLM's logits have {logits.size(1)}")

    def add_to_rows(
        self, logits: torch.Tensor, region: int, rows_b: torch.Tensor, temperatures_b: torch.Tensor
    ) -> None:
        """Rows by their index, where the host knows who is in which region."""
        columns = self._columns[region]
        for block in columns.forbidden_slices:
            logits[:, block].index_fill_(0, rows_b, -math.inf)
        if len(columns.forbidden_ids):
            logits[rows_b.unsqueeze(1), columns.forbidden_ids] = -math.inf
        for block, shift in columns.shifted_slices:
            view = logits[:, block]
            view.index_add_(0, rows_b, (temperatures_b * shift).unsqueeze(1).expand(-1, view.size(1)))
        if len(columns.shifted_ids):
            logits[rows_b.unsqueeze(1), columns.shifted_ids] += temperatures_b.unsqueeze(1) * columns.shifts

    def add_where(self, logits: torch.Tensor, region: int, here_B: torch.Tensor, temperatures_B: torch.Tensor) -> None:
        """Rows by a mask on the device, where asking who is in which region would make the host wait."""
        columns, here_B1 = self._columns[region], here_B.unsqueeze(1)
        for block in columns.forbidden_slices:
            logits[:, block].masked_fill_(here_B1, -math.inf)
        if len(columns.forbidden_ids):
            some = logits[:, columns.forbidden_ids].masked_fill_(here_B1, -math.inf)
            logits.index_copy_(1, columns.forbidden_ids, some)
        scale_B1 = torch.where(here_B, temperatures_B, 0.0).unsqueeze(1)
        for block, shift in columns.shifted_slices:
            logits[:, block].add_(scale_B1 * shift)
        if len(columns.shifted_ids):
            logits.index_add_(1, columns.shifted_ids, scale_B1 * columns.shifts)


def _columns(bias_V: torch.Tensor, device: torch.device) -> _Columns:
    finite_v = bias_V[torch.isfinite(bias_V)]
    shift_V = bias_V - finite_v.mode().values
    forbidden = [run for run in _runs(shift_V) if run[2] == -math.inf]
    shifted = [run for run in _runs(shift_V) if math.isfinite(run[2]) and run[2] != 0.0]
    forbidden_ids, shifted_ids = _short(forbidden), _short(shifted)
    return _Columns(
        forbidden_slices=[slice(start, end) for start, end, _ in _long(forbidden)],
        forbidden_ids=forbidden_ids.to(device),
        shifted_slices=[(slice(start, end), value) for start, end, value in _long(shifted)],
        shifted_ids=shifted_ids.to(device),
        shifts=shift_V[shifted_ids].to(device),
    )


def _runs(values_V: torch.Tensor) -> list[tuple[int, int, float]]:
    """Stretches of equal value: start, end, value."""
    values, lengths = values_V.unique_consecutive(return_counts=True)
    ends = lengths.cumsum(0)
    return list(zip((ends - lengths).tolist(), ends.tolist(), values.tolist(), strict=True))


def _long(runs: list[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
    return [run for run in runs if run[1] - run[0] >= _SHORTEST_SLICE]


def _short(runs: list[tuple[int, int, float]]) -> torch.Tensor:
    ids = [id_ for start, end, _ in runs if end - start < _SHORTEST_SLICE for id_ in range(start, end)]
    return torch.tensor(ids, dtype=torch.long)
