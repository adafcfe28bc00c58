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


class StepEntropies:
    """Mean entropies over all tokens of a step, which are computed batch by batch.

    The mean of the batches' means would depend on how a step is cut into batches: with more processes or more memory
    the same figures would read otherwise.
    """

    def __init__(self) -> None:
        self._sums: dict[str, tuple[int, torch.Tensor]] = {}

    def log(self, sums: torch.Tensor, step: int, metrics: dict[str, list[float]]) -> None:
        """Count a batch in the logged values: one for each step and name.

        Args:
            sums: what `region_entropies` returns, added up over processes.
            metrics: values logged so far, by name.
        """
        for region, name in ((ANSWERING, "entropy/answering"), (THINKING, "entropy/thinking")):
            counted_step, counted = self._sums.get(name, (step, torch.zeros_like(sums[region])))
            goes_on = counted_step == step and bool(metrics.get(name)) and bool(counted[1])
            self._sums[name] = step, sums[region] + counted if goes_on else sums[region]
            total, tokens = self._sums[name][1].tolist()
            if tokens:
                metrics[name][-1 if goes_on else len(metrics[name]) :] = [total / tokens]
