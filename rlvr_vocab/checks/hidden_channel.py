"""What is asked of the choices among the ids of a text: a target, a placebo, a planted channel."""

from __future__ import annotations

from rlvr_vocab.config.batches import completions_together
from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.errors import UserError
from rlvr_vocab.training.refuse_control import PLACEBO_FIELDS, refuse_beside_placebo, refuse_target


def check_hidden_bits(settings: RunSettings) -> None:
    model, target = settings.model, settings.training.hidden_bits
    frozen = model.rows_in_force == "frozen" or (model.trains_adapter and model.lora.train_rows == "none")
    if target is not None:
        refuse_target(target, copies_differ=model.adds_copies and not frozen, limit=model.hidden_bits)


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
    if model.hidden_bits is not None:
        raise UserError(f"{wanted} choices without a limit: leave out model.hidden_bits={model.hidden_bits}")
    if warmup.until_accuracy is not None:
        raise UserError(
            f"warmup.until_accuracy={warmup.until_accuracy}: a channel is planted in warmup.max_steps steps"
        )
