"""What `training.placebo` cannot stand beside: whatever compares the scored id with the one that was sampled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlvr_vocab.config.batches import completions_together, value_of
from rlvr_vocab.errors import UserError


def refuse_beside_placebo(fields: Mapping[str, Any], kl_over: str) -> None:
    """
    Args:
        fields: of TRL's arguments, by name; what is missing or None is as by default.

    Raises:
        UserError: one of them would compare the two.
    """
    _, steps = completions_together(fields)
    together = steps * value_of(fields, "num_iterations")
    reasons = {
        f"beta={fields.get('beta')} with training.kl_over={kl_over}": bool(fields.get("beta")) and kl_over == "ids",
        f"num_iterations={fields.get('num_iterations')}": value_of(fields, "num_iterations") > 1,
        f"steps_per_generation={steps}": value_of(fields, "gradient_accumulation_steps") % together != 0,
        f"off_policy_mask_threshold={fields.get('off_policy_mask_threshold')}": (
            fields.get("off_policy_mask_threshold") is not None
        ),
        "use_vllm=true": bool(fields.get("use_vllm")),
    }
    for words, refused in reasons.items():
        if refused:
            raise UserError(
                f"training.placebo=true scores other ids than were sampled, and training.{words} would compare the two"
            )
