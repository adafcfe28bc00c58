"""How much the completions of a batch differ: in their rewards within a group, and in what they say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

import torch
from trl.trainer.utils import nanstd

# Shapes: B completions of all processes, group after group; R reward functions; G completions of a group.


def reward_spread(rewards_BR: torch.Tensor, weights_R: torch.Tensor, group_size: int) -> float | None:
    """Mean over the groups of the standard deviation of the weighted reward within the group, with n - 1 below.

    Args:
        rewards_BR: NaN where a function gave none; a row without any reward is left out.

    Returns:
        None where no group has two rewards to compare.
    """
    total_B = (rewards_BR * weights_R.to(rewards_BR.device)).nansum(dim=1)
    total_B = total_B.masked_fill(rewards_BR.isnan().all(dim=1), torch.nan)
    spread = nanstd(total_B.double().view(-1, group_size), dim=1).nanmean().item()
    return None if spread != spread else spread


def duplicates(texts: Sequence[str], group_size: int) -> float:
    """Share of completions whose text repeats an earlier one of their own group.

    >>> duplicates(["a", "a", "b", "a", "c", "c"], group_size=3)
    0.3333333333333333
    """
    groups = [texts[start : start + group_size] for start in range(0, len(texts), group_size)]
    return sum(len(group) - len(set(group)) for group in groups) / len(texts)


def shared(texts: Sequence[str], prompts: Sequence[Hashable]) -> float:
    """Share of completions whose whole text was also given to a different prompt.

    >>> shared(["a", "a", "a", "b"], ["1", "1", "2", "2"])
    0.75
    """
    prompts_of = defaultdict(set)
    for text, prompt in zip(texts, prompts, strict=True):
        prompts_of[text].add(prompt)
    return sum(len(prompts_of[text]) > 1 for text in texts) / len(texts)
