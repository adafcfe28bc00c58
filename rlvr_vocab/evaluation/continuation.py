"""Continuations of given ids, sampled from given random numbers, and log-probabilities of given ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from rlvr_vocab.evaluation.sampling import Checkpoint, end_ids_of
from rlvr_vocab.vocab.head import attach_region_head
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.sampling import RegionSampler, TwoStageSampler

# The ids that follow each prompt, up to the end of the turn: prompts, `(steps, 2)` random numbers for each.
Continue = Callable[[Sequence[Sequence[int]], Sequence[np.ndarray]], list[list[int]]]


class Continuations:
    """Samples and scores continuations of a model with copies, at a temperature above 0."""

    def __init__(self, checkpoint: Checkpoint, temperature: float) -> None:
        sampler: Any = checkpoint.model.generate
        assert isinstance(sampler, RegionSampler) and checkpoint.layout.size and temperature > 0
        self.policy = RegionPolicy(checkpoint.layout)
        self._model, self._sampler, self._temperature = checkpoint.model, sampler, temperature
        self._end_ids = frozenset(end_ids_of(checkpoint.model))
        attach_region_head(checkpoint.model, policy=self.policy, temperature=temperature)

    @torch.no_grad()
    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        uniforms: Sequence[np.ndarray],
        texts: Sequence[Sequence[int]] | None = None,
    ) -> list[list[int]]:
        """The ids that follow each prompt, up to the end of the turn.

        Args:
            uniforms: `(steps, 2)` random numbers for each prompt.
            texts: for each prompt the texts of its first ids, as standard tokens; None: free.
        """
        input_ids, mask = self._padded(prompts)
        numbers = pad_sequence([torch.from_numpy(each) for each in uniforms], batch_first=True)
        given = torch.full(numbers.shape[:2], -1)
        for row, text in enumerate(texts or ()):
            given[row, : len(text)] = torch.tensor(text)
        draw = TwoStageSampler(self.policy, self._temperature, numbers.to(mask.device), given.to(mask.device))
        with self._sampler.drawing(draw):
            output = self._model.generate(input_ids=input_ids, attention_mask=mask, max_new_tokens=numbers.size(1))
        rows = output[:, input_ids.size(1) :].tolist()
        return [self._to_the_end(ids[: len(each)]) for ids, each in zip(rows, uniforms, strict=True)]

    @torch.no_grad()
    def logps(
        self,
        prompts: Sequence[Sequence[int]],
        ids: Sequence[Sequence[int]],
        of: Literal["log_probs", "copy_log_probs"] = "log_probs",
    ) -> list[float]:
        """Log-probability of the ids that follow each prompt; `copy_log_probs`: of their choice, given their texts."""
        if not prompts:
            return []
        input_ids, mask = self._padded([[*prompt, *own] for prompt, own in zip(prompts, ids, strict=True)])
        labels = torch.full_like(input_ids, -100)
        for row, own in enumerate(ids):
            labels[row, labels.size(1) - len(own) :] = torch.tensor(own)
        scores = self._model(input_ids=input_ids, attention_mask=mask, labels=labels, fused_lm_head=True)
        found: list[float] = scores[of].double().sum(1).tolist()
        return found

    def without_end(self, ids: Sequence[int]) -> list[int]:
        return [token for token in ids if token not in self._end_ids]

    def _to_the_end(self, ids: list[int]) -> list[int]:
        return ids[: next((place + 1 for place, token in enumerate(ids) if token in self._end_ids), len(ids))]

    def _padded(self, rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and their mask, padded on the left."""
        tensors = [torch.tensor(row) for row in rows]
        ids, mask = (
            pad_sequence(each, batch_first=True, padding_side="left")
            for each in (tensors, [torch.ones_like(row) for row in tensors])
        )
        return ids.to(self._model.device), mask.to(self._model.device)
