"""The control in which copies can mean nothing: each choice among the ids of a text is scored as another one would be.

The thought goes on with the id that was sampled. What is reinforced is an id of the same text drawn from the same
p(id | text, what stands before), which nothing that follows has seen, so that no reward can depend on it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from rlvr_vocab.vocab.logprobs import Scores
from rlvr_vocab.vocab.policy import RegionPolicy


@torch.no_grad()
def redrawn_choices(
    targets_N: torch.Tensor, score: Callable[[torch.Tensor], Scores], policy: RegionPolicy
) -> torch.Tensor:
    """An id of each target's text, drawn from the policy's own choice there by torch's generator.

    Args:
        score: scores ids in the places of the targets.
    """
    ids_NM, exists_NM = policy.ids_of_texts(policy.surface_ids(targets_N).unsqueeze(1))
    p_NM = torch.stack([score(ids_N).copy_log_probs for ids_N in ids_NM.unbind(1)], dim=1).exp()
    return ids_NM.gather(1, (p_NM * exists_NM).multinomial(1)).squeeze(1)
