"""Truncated sampling over texts: `top_k`, `top_p` and `min_p` keep or drop a source together with its copies.

The third term of the policy: log_softmax(logits / temperature + bias[region] + kept), with 0 for the ids of a kept text
and -inf for others. Scoring replays the texts that a token was drawn from: its own weights would choose others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, Self

import torch
from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

# Shapes: B sequences, V texts, C tokens of a completion, N scored positions, n of one block, v texts of one block.
# For each token of a completion `(C,)` how many texts were kept, and their ids one after the other; int32, on the CPU.
PackedTexts = tuple[torch.Tensor, torch.Tensor]
_OVER_TEXTS = "text_"  # before the names of a request's arguments


@dataclass(frozen=True)
class Truncation:
    """What Transformers' sampling options keep of a distribution over texts, in its order; false if that is all."""

    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    @classmethod
    def of(cls, options: Any) -> Self:
        """Those of a `GenerationConfig`, or of `GRPOConfig`."""
        return cls(options.top_k, options.top_p, options.min_p)

    @classmethod
    def of_request(cls, extra_args: Mapping[str, Any] | None) -> Self:
        """Those of a request to vLLM, where names without `text_` would act over ids; ValueError for a wrong value."""
        given = {field.name: (extra_args or {}).get(f"{_OVER_TEXTS}{field.name}") for field in fields(cls)}
        asked = cls(**given)
        bool(asked)  # Transformers checks the values
        return asked

    def request_args(self) -> dict[str, Any]:
        return {f"{_OVER_TEXTS}{name}": value for name, value in asdict(self).items() if value is not None}

    @cached_property
    def _warpers(self) -> list[Any]:
        warpers: list[Any] = [TopKLogitsWarper(self.top_k)] if self.top_k else []
        warpers += [TopPLogitsWarper(self.top_p)] if self.top_p is not None and self.top_p != 1 else []
        return warpers + ([MinPLogitsWarper(self.min_p)] if self.min_p else [])

    def __bool__(self) -> bool:
        return bool(self._warpers)

    def keeps(self, log_q_BV: torch.Tensor) -> torch.Tensor:
        """`(B, V)` bool, from log-probabilities of texts, or logits."""
        for warper in self._warpers:
            log_q_BV = warper(None, log_q_BV)
        return log_q_BV > -torch.inf

    def keeps_at_most_k(self, log_q_BV: torch.Tensor) -> torch.Tensor:
        """The same without the texts that tie with the last of `top_k`, so that `top_k` bounds their number."""
        kept_BV = self.keeps(log_q_BV)
        if not self.top_k:
            return kept_BV
        best_Bk = log_q_BV.topk(min(self.top_k, log_q_BV.size(1))).indices
        return torch.zeros_like(kept_BV).scatter(1, best_Bk, True) & kept_BV


def texts_of(kept_BV: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The kept texts of each row, int32 on the CPU."""
    return kept_BV.nonzero()[:, 1].int().cpu().split(kept_BV.sum(1).tolist())


def packed(texts: Sequence[torch.Tensor]) -> PackedTexts:
    """The kept texts of the tokens of a completion, given for each token."""
    return torch.tensor([len(each) for each in texts], dtype=torch.int32), torch.cat([torch.empty(0).int(), *texts])


class KeptTexts:
    """The texts from which each of N scored positions was drawn: M pairs of a text and a position, ascending."""

    def __init__(self, texts_M: torch.Tensor, positions_M: torch.Tensor, size: int) -> None:
        self._texts, self._positions, self._size = texts_M, positions_M, size

    @classmethod
    def of(cls, completions: Iterable[PackedTexts], device: torch.device) -> Self:
        counts_N, texts_M = (torch.cat(each).to(device).long() for each in zip(*completions, strict=True))
        return cls(texts_M, torch.arange(len(counts_N), device=device).repeat_interleave(counts_N), len(counts_N))

    def at(self, positions_n: torch.Tensor) -> KeptTexts:
        """Those of some positions, in their order."""
        place_N = torch.full((self._size,), -1, device=positions_n.device)
        place_N[positions_n] = torch.arange(len(positions_n), device=positions_n.device)
        places_M = place_N[self._positions]
        return KeptTexts(self._texts[places_M >= 0], places_M[places_M >= 0], len(positions_n))

    def mask(self, texts: slice) -> torch.Tensor:
        """`(n, v)` bool: whether each position keeps each text of a block."""
        width = texts.stop - texts.start
        inside = (self._texts >= texts.start) & (self._texts < texts.stop)
        column = torch.where(inside, self._texts - texts.start, width)  # others: a column that is cut off
        kept_nv = torch.zeros(self._size, width + 1, dtype=torch.bool, device=column.device)
        kept_nv[self._positions, column] = True
        return kept_nv[:, :width]
