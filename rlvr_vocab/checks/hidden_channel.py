"""What is asked of the choices among the ids of a text: a placebo, a planted channel."""

from __future__ import annotations

from rlvr_vocab.config.batches import completions_together
from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.errors import UserError
from rlvr_vocab.training.refuse_control import PLACEBO_FIELDS, refuse_beside_placebo


def check_placebo(settings: RunSettings) -> None:
    if not settings.training.placebo:
        return
    if not settings.model.adds_copies:
        raise UserError("training.placebo=true: without a reasoning vocabulary there is no choice to be reinforced")
    grpo = settings.training.grpo
    _, together = completions_together(grpo)
    fields = {name: grpo.get(name) for name in PLACEBO_FIELDS}
    refuse_beside_placebo({**fields, "steps_per_generation": together}, settings.training.kl_over)


def check_planted(settings: RunSettings) -> None:
    model, warmup, wanted = settings.model, settings.warmup, "warmup.planted_bits needs"
    if model.tiny is None:
        raise UserError(f"{wanted} the embedded model, which learns it in a minute: model=tiny")
    if settings.dataset.columns.answer is None:
        raise UserError(f"{wanted} gold answers: set dataset.columns.answer")
    if not warmup.max_steps:
        raise UserError(f"{wanted} steps to learn them: set warmup.max_steps")
    if not model.adds_copies or model.reasoning_mode == "replace":
        raise UserError(
            f"{wanted} a token and a copy to choose from: set model.reasoning_vocab_size, and expand as mode"
        )
    if model.rows_in_force != "independent":
        raise UserError(f"{wanted} model.reasoning_rows=independent, and here it is {model.rows_in_force}")
    if warmup.until_accuracy is not None:
        raise UserError(
            f"warmup.until_accuracy={warmup.until_accuracy}: a channel is planted in warmup.max_steps steps"
        )
