"""Prompts in tokens: how long they are, which limit that suggests, and who opens the thinking."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Literal

ThinkingOpener = Literal["template", "model", "nobody"]
QUANTILES = (0.5, 0.9, 0.95, 0.99)
LIMIT_STEP, LIMIT_KEEPS = 64, 0.99


@dataclass(frozen=True)
class LengthFacts:
    """Tokens per prompt.

    Args:
        counts: Length -> number of prompts of that length, the shortest first.
        quantiles: Share of the prompts -> the length that so many do not exceed.
        suggested_limit: The smallest multiple of 64 that keeps at least 99 % of the prompts.
        left_out: How many it leaves out.
    """

    counts: dict[int, int]
    quantiles: dict[float, int]
    suggested_limit: int
    left_out: int

    @property
    def shortest(self) -> int:
        return next(iter(self.counts))

    @property
    def longest(self) -> int:
        return max(self.counts)


@dataclass(frozen=True)
class PromptFacts:
    """The first training prompt, rendered, and the lengths of all.

    Args:
        row_number: Of the problem whose prompt is shown.
        opener: Who opens the thinking: the template, the model, or nobody, as the template closes it at once.
        knows_tag: Whether the base model's tokenizer has the opening tag.
        context_length: Most positions that the model takes, where its configuration says so.
        max_completion: `model.generation_kwargs.max_new_tokens`, the completion limit of training.
        embedded_model: Whether the model is the embedded one, whose tokenizer is like no other.
    """

    model: str
    text: str
    tokens: int
    row_number: int
    opener: ThinkingOpener
    think_tag: str
    knows_tag: bool
    context_length: int | None
    max_completion: int
    embedded_model: bool
    lengths: LengthFacts

    @property
    def fits(self) -> bool:
        """Whether the longest prompt leaves room for a whole completion."""
        return self.context_length is None or self.lengths.longest + self.max_completion <= self.context_length


def length_facts(lengths: Iterable[int]) -> LengthFacts:
    """Facts about at least one length."""
    counts = dict(sorted(Counter(lengths).items()))
    limit = ceil(quantile(counts, LIMIT_KEEPS) / LIMIT_STEP) * LIMIT_STEP
    return LengthFacts(
        counts=counts,
        quantiles={share: quantile(counts, share) for share in QUANTILES},
        suggested_limit=limit,
        left_out=sum(count for length, count in counts.items() if length > limit),
    )


def quantile(counts: Mapping[int, int], share: float) -> int:
    """The smallest length that at least this share of the prompts does not exceed; share from 0 to 1.

    Example:
        >>> quantile({10: 1, 20: 1, 30: 2}, 0.5)
        20
    """
    total, kept = sum(counts.values()), 0
    for length in sorted(counts):
        kept += counts[length]
        if kept >= share * total:
            return length
    raise ValueError("no length to take a quantile of")


def limits_that_fit(counts: Mapping[int, int], context: int, max_completion: int, least: int = 1) -> str:
    """What can be set so that prompts and completions fit the model's context.

    Args:
        counts: Length -> number of prompts of that length.
        least: A limit on prompts has to keep so many of them.
    """
    advice, shortest, longest = [], min(counts), max(counts)
    if longest < context:
        advice.append(f"training.max_completion_length={context - longest}")
    # Where no prompt fits beside such a completion, both have to give way.
    half = max(context // 2, shortest)
    for limit, words in ((context - max_completion, ""), (half, f" training.max_completion_length={context - half}")):
        kept, total = sum(count for length, count in counts.items() if length <= limit), sum(counts.values())
        if limit < context and kept >= least and not (words and advice):
            advice.append(
                f"training.max_prompt_length={limit}{words}, which leaves out {total - kept} of {total} prompts"
            )
    return f"set {', or '.join(advice)}" if advice else "take a model with a longer context"
