"""A run in which no choice between a token and its copies is credited with what follows it.

    python benchmarks/probe_controls/placebo.py quickstart [key=value ...]

The thought goes on with the id that was sampled. The loss reinforces another id of the same text, drawn from the same
p(id | text, what stands before), which nothing that follows has seen.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

from rlvr_vocab import RegionGRPOTrainer
from rlvr_vocab.cli import main
from rlvr_vocab.runs.stages import StagedRun
from rlvr_vocab.vocab.head import RegionScores
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.sampling import draw_one

IGNORED = -100


class PlaceboTrainer(RegionGRPOTrainer):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        accumulated, together = self.args.gradient_accumulation_steps, self.args.generation_batch_size
        per_update = accumulated * self.args.per_device_train_batch_size * self.args.world_size
        if self.beta or self.num_iterations > 1 or per_update % together or self.use_vllm:
            raise ValueError("a placebo takes one update a batch, beta=0, no vLLM: else the loss compares two ids")
        self.model.forward = scoring_other_choices(self.model.forward, self.policy)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        self._metrics["train"].pop("sampling/logp_gap", None)  # of ids that were not sampled
        super().log(logs, start_time)


def scoring_other_choices(own_forward: Callable[..., Any], policy: RegionPolicy) -> Callable[..., Any]:
    """A forward with a region head; with gradients it scores redrawn labels."""

    @functools.wraps(own_forward)
    def forward(*args: Any, labels: torch.Tensor | None = None, fused_lm_head: bool = False, **kwargs: Any) -> Any:
        score = functools.partial(own_forward, *args, fused_lm_head=fused_lm_head, **kwargs)
        if fused_lm_head and labels is not None and torch.is_grad_enabled():
            labels = redrawn(labels, score, policy)
        return score(labels=labels)

    return forward


@torch.no_grad()
def redrawn(labels_BT: torch.Tensor, score: Callable[..., RegionScores], policy: RegionPolicy) -> torch.Tensor:
    """Labels with an id of each one's text, drawn from the policy's choice there by torch's generator."""
    scored_BT = labels_BT != IGNORED
    scored_BT[:, 0] = False  # nothing predicts it
    ids_NM, exists_NM = policy.ids_of_texts(policy.surface_ids(labels_BT[scored_BT]).unsqueeze(1))
    choices = []
    for ids_N in ids_NM.unbind(1):
        copy_logps = score(labels=labels_BT.masked_scatter(scored_BT, ids_N)).copy_log_probs
        choices.append(copy_logps[scored_BT[:, 1:]].exp())
    nth_N1 = draw_one(torch.stack(choices, dim=1) * exists_NM)
    return labels_BT.masked_scatter(scored_BT, ids_NM.gather(1, nth_N1))


if __name__ == "__main__":
    StagedRun.trainer_class = PlaceboTrainer
    sys.exit(main(sys.argv[1:]))
