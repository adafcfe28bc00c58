"""How far the sampler's log-probabilities lie from the policy's own, for every step's log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from trl.models.utils import disable_gradient_checkpointing

from rlvr_vocab.training.metrics.batch import StepMeans
from rlvr_vocab.training.models.lora import has_dropout

# Completions of a batch that are scored once more where the pass of the loss drops what sampling does not.
_SCORED_WITHOUT_DROPOUT = 4


class SamplingGap:
    """Logs `sampling/logp_gap` where completions are trained on before the first update since they were drawn.

    Args:
        trainer: a `GRPOTrainer` whose scoring without gradients knows no dropout.

    Attributes:
        loss_logps: log-probabilities that the pass of the loss has found, which the trainer puts here.
    """

    def __init__(self, trainer: Any) -> None:
        self.loss_logps: torch.Tensor | None = None
        self._trainer = trainer
        self._means = StepMeans()
        # A checkpoint is written after an update: completions that a resume finds unfinished were drawn before it.
        self._drawn_at: int | None = None

    def completions_drawn(self) -> None:
        self._drawn_at = self._trainer.state.global_step

    @contextmanager
    def measured(self, model: Any, inputs: dict[str, Any]) -> Iterator[None]:
        """Around the pass of the loss."""
        trainer = self._trainer
        before_any_update = trainer.model.training and self._drawn_at == trainer.state.global_step
        compared = before_any_update and "sampling_per_token_logps" in inputs
        scored = self._scores_without_dropout(model, inputs) if compared else None
        yield
        scored = self.loss_logps if scored is None else scored
        if compared and scored is not None:
            sampled, mask = (inputs[name][: len(scored)] for name in ("sampling_per_token_logps", "completion_mask"))
            sums = trainer.accelerator.reduce(gap_sums(sampled, scored, mask), reduction="sum")
            self._means.log("sampling/logp_gap", sums, trainer.state.global_step, trainer._metrics["train"])
        self.loss_logps = None

    @torch.no_grad()
    def _scores_without_dropout(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor | None:
        """Log-probabilities of the first completions, at least; None where the pass of the loss gives those of all."""
        if "old_per_token_logps" in inputs:
            return inputs["old_per_token_logps"]
        if not has_dropout(model):
            return None
        few = slice(_SCORED_WITHOUT_DROPOUT)
        ids, mask = (
            torch.cat([inputs[f"prompt_{name}"][few], inputs[f"completion_{name}"][few]], dim=1)
            for name in ("ids", "mask")
        )
        trainer = self._trainer
        with disable_gradient_checkpointing(trainer.model, trainer.args.gradient_checkpointing_kwargs):
            scored, *_ = trainer._get_per_token_logps_and_entropies(model, ids, mask, inputs["completion_ids"].size(1))
        return scored


def gap_sums(sampled_BC: torch.Tensor, scored_BC: torch.Tensor, mask_BC: torch.Tensor) -> torch.Tensor:
    """Sum of the absolute differences and number of tokens, to be added up over processes.

    Args:
        sampled_BC: NaN where a server could not say: such tokens are left out.

    Returns:
        `(2,)` float64.
    """
    counted = mask_BC.bool() & ~sampled_BC.isnan()
    distances = (sampled_BC.double() - scored_BC.double()).abs()
    return torch.stack([distances[counted].sum(), counted.sum().double()])
