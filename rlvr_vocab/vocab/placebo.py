"""The control in which no choice is credited with what follows it: another one is reinforced in its place.

The thought goes on with the id that was sampled. What is reinforced is an id of the same text, drawn from the same
p(id | text, what stands before), which nothing that follows has seen.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from rlvr_vocab.vocab.logprobs import Scores
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.sampling import draw_one


@torch.no_grad()
def redrawn_choices(
    sampled_N: torch.Tensor, score: Callable[[torch.Tensor], Scores], policy: RegionPolicy
) -> tuple[torch.Tensor, torch.Tensor]:
    """An id of each sampled one's text, drawn from the policy's choice there by torch's generator.

    Args:
        score: scores ids in the places of the sampled ones; it is called for every id that a text may have.

    Returns:
        The drawn ids, and the log-probabilities of the sampled ones.
    """
    if not len(sampled_N):
        return sampled_N, score(sampled_N).log_probs
    ids_NM, exists_NM = policy.ids_of_texts(policy.surface_ids(sampled_N).unsqueeze(1))
    scores = [score(ids_N) for ids_N in ids_NM.unbind(1)]
    logps_NM = torch.stack([each.log_probs for each in scores], dim=1)
    choices_NM = torch.stack([each.copy_log_probs for each in scores], dim=1).exp()
    drawn_N1 = draw_one(choices_NM * exists_NM)
    own_N1 = ((ids_NM == sampled_N.unsqueeze(1)) & exists_NM).int().argmax(dim=1, keepdim=True)
    return ids_NM.gather(1, drawn_N1).squeeze(1), logps_NM.gather(1, own_N1).squeeze(1)
