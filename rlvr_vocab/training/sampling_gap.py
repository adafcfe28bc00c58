"""How far the log-probabilities recorded while sampling are from those that the trainer scores the same tokens with."""

from __future__ import annotations

import torch


def gap_sums(sampled_BC: torch.Tensor, scored_BC: torch.Tensor, mask_BC: torch.Tensor) -> torch.Tensor:
    """Sum of the absolute differences and number of tokens, to be added up over processes.

    Args:
        sampled_BC: NaN where a server could not say: such tokens are left out.

    Returns:
        `(2,)` float64.
    """
    counted = mask_BC.bool() & ~sampled_BC.isnan()
    distances = (sampled_BC.double() - scored_BC.double()).abs()
    return torch.stack([distances[counted].sum(), counted.sum().double()])
