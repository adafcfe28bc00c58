"""Means over all tokens of a step, which is computed batch by batch."""

from __future__ import annotations

import torch


class StepMeans:
    """Adds up what the batches of a step come to, so that each step logs one value under a name.

    The mean of the batches' means would depend on how a step is cut into batches: with more processes or more memory
    the same figures would read otherwise.
    """

    def __init__(self) -> None:
        self._sums: dict[str, tuple[int, torch.Tensor]] = {}

    def log(self, name: str, sums: torch.Tensor, step: int, metrics: dict[str, list[float]]) -> None:
        """Count a batch in the logged value of its step.

        Args:
            sums: `(2,)` sum of the values and number of tokens, added up over processes.
            metrics: values logged so far, by name.
        """
        counted_step, counted = self._sums.get(name, (step, torch.zeros_like(sums)))
        goes_on = counted_step == step and bool(metrics.get(name)) and bool(counted[1])
        self._sums[name] = step, sums + counted if goes_on else sums
        total, tokens = self._sums[name][1].tolist()
        if tokens:
            metrics[name][-1 if goes_on else len(metrics[name]) :] = [total / tokens]
