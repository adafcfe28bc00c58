"""What a batch of completions says about thinking and answering, counted from ids."""

from __future__ import annotations

import torch

from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import ANSWERING, THINKING, regions_after, scored_regions

# Shapes: B completions, P prompt positions, C completion positions.


def region_counts(
    prompt_ids_BP: torch.Tensor, completion_ids_BC: torch.Tensor, mask_BC: torch.Tensor, policy: RegionPolicy
) -> torch.Tensor:
    """Sums over a batch, to be added up over processes and then read by `region_metrics`.

    Returns:
        `(5,)` float64: completions, thinking tokens, answering tokens, reasoning tokens, completions whose thinking
        was closed. The closing tag is chosen while thinking and counts there.
    """
    ids = torch.cat([prompt_ids_BP, completion_ids_BC], dim=1)
    prompt_length = prompt_ids_BP.size(1)
    mask = mask_BC.bool()
    thinking = (scored_regions(ids, policy.layout)[:, prompt_length:] == THINKING) & mask
    last = prompt_length - 1 + mask.sum(1)
    ends_answering = regions_after(ids, policy.layout).gather(1, last.unsqueeze(1)).squeeze(1) == ANSWERING
    counts = (
        torch.tensor(len(ids), device=ids.device),
        thinking.sum(),
        (mask & ~thinking).sum(),
        (policy.is_reasoning(completion_ids_BC) & mask).sum(),
        (thinking.any(1) & ends_answering).sum(),
    )
    return torch.stack(counts).double()


def region_metrics(counts: torch.Tensor) -> dict[str, float]:
    """Named figures from `region_counts`; the share of reasoning tokens is left out where nothing was thought."""
    completions, thinking, answering, reasoning, closed = counts.tolist()
    metrics = {
        "thinking/mean_length": thinking / completions,
        "answering/mean_length": answering / completions,
        "thinking/closed": closed / completions,
    }
    if thinking:
        metrics["thinking/reasoning_share"] = reasoning / thinking
    return metrics


def region_entropies(entropies_BC: torch.Tensor, regions_BC: torch.Tensor, mask_BC: torch.Tensor) -> torch.Tensor:
    """`(2, 2)` float64: for answering and thinking, the sum of entropies in nats and the number of tokens."""
    sums = []
    for region in (ANSWERING, THINKING):
        chosen = (regions_BC == region) & mask_BC.bool()
        sums.append(torch.stack([entropies_BC[chosen].double().sum(), chosen.sum().double()]))
    return torch.stack(sums)
