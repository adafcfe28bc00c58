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

from rlvr_vocab.vocab.policy import RegionPolicy

# Shapes: B sequences, V texts, R ids, C tokens of a completion, N scored positions; n positions, v texts of one block.
# For each token of a completion `(C,)` how many texts were kept, and their ids one after the other; int32, on the CPU.
PackedTexts = tuple[torch.Tensor, torch.Tensor]
_OVER_TEXTS = "text_"  # before the names of a request's arguments


@dataclass(frozen=True)
class Truncation:
    """Transformers' truncating options, applied in its order; falsy where they keep everything.

    Raises ValueError for a value that Transformers refuses.
    """

    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def __post_init__(self) -> None:
        bool(self)  # Transformers checks the values

    @classmethod
    def of_options(cls, options: Any) -> Self:
        """The fields of a `GenerationConfig`, or of a `GRPOConfig`."""
        return cls(options.top_k, options.top_p, options.min_p)

    @classmethod
    def of_request(cls, extra_args: Mapping[str, Any] | None) -> Self:
        """The arguments of a request to vLLM, whose own options act over ids; ValueError for an unknown `text_…`."""
        given = {name: value for name, value in (extra_args or {}).items() if name.startswith(_OVER_TEXTS)}
        known = {f"{_OVER_TEXTS}{field.name}": field.name for field in fields(cls)}
        if unknown := given.keys() - known.keys():
            raise ValueError(f"{min(unknown)} is unknown: there are {', '.join(known)}")
        return cls(**{known[name]: value for name, value in given.items()})

    def request_args(self) -> dict[str, Any]:
        return {f"{_OVER_TEXTS}{name}": value for name, value in asdict(self).items() if value is not None}

    @cached_property
    def _warpers(self) -> list[Any]:
        warpers: list[Any] = [TopKLogitsWarper(self.top_k)] if self.top_k else []
        warpers += [TopPLogitsWarper(self.top_p)] if self.top_p is not None and self.top_p != 1 else []
        return warpers + ([MinPLogitsWarper(self.min_p)] if self.min_p else [])

    def __bool__(self) -> bool:
        return bool(self._warpers)

    def keep_mask(self, log_q_BV: torch.Tensor) -> torch.Tensor:
        """`(B, V)` bool, from log-probabilities of texts, or logits; NaN is kept, for its draw to be noticed."""
        for warper in self._warpers:
            log_q_BV = warper(None, log_q_BV)
        return log_q_BV != -torch.inf

    def drop_mask_of_ids(self, z_BR: torch.Tensor, policy: RegionPolicy) -> torch.Tensor:
        """`(B, R)` bool, from logits that are divided by the temperature and have the policy's bias."""
        return policy.of_ids(~self.keep_mask(policy.over_texts(z_BR.softmax(1)).log()))


def kept_text_ids(kept_BV: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The kept texts of each row, int32 on the CPU."""
    return kept_BV.nonzero()[:, 1].int().cpu().split(kept_BV.sum(1).tolist())


def pack_kept_texts(of_tokens: Sequence[torch.Tensor]) -> PackedTexts:
    """The kept texts of a completion, which are given for each token."""
    counts = torch.tensor([len(each) for each in of_tokens], dtype=torch.int32)
    return counts, torch.cat([torch.empty(0, dtype=torch.int32), *of_tokens])


class KeptTexts:
    """The texts from which each of N scored positions was drawn: M pairs of a text and a position."""

    def __init__(self, texts_M: torch.Tensor, positions_M: torch.Tensor, size: int) -> None:
        self._texts, self._positions, self._size = texts_M, positions_M, size

    @classmethod
    def of_completions(cls, completions: Iterable[PackedTexts], device: torch.device) -> Self:
        """The positions are the tokens of the completions, one after the other."""
        counts_N, texts_M = (torch.cat(each).to(device).long() for each in zip(*completions, strict=True))
        return cls(texts_M, torch.arange(len(counts_N), device=device).repeat_interleave(counts_N), len(counts_N))

    def select(self, positions_n: torch.Tensor) -> KeptTexts:
        """The texts of some positions, in their order."""
        place_N = torch.full((self._size,), -1, device=positions_n.device)
        place_N[positions_n] = torch.arange(len(positions_n), device=positions_n.device)
        places_M = place_N[self._positions]
        return KeptTexts(self._texts[places_M >= 0], places_M[places_M >= 0], len(positions_n))

    def drop_mask(self, texts: slice) -> torch.Tensor:
        """`(n, v)` bool: whether each position drops each text of a block."""
        width = texts.stop - texts.start
        inside = (self._texts >= texts.start) & (self._texts < texts.stop)
        column = torch.where(inside, self._texts - texts.start, width)  # others: a column that is cut off
        drops_nv = torch.ones(self._size, width + 1, dtype=torch.bool, device=column.device)
        drops_nv[self._positions, column] = False
        return drops_nv[:, :width]
