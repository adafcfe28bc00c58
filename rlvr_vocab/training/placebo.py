"""What `training.placebo` cannot stand beside: whatever compares a token's log-probability with an earlier one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlvr_vocab.errors import UserError


def refuse_beside_placebo(fields: Mapping[str, Any]) -> None:
    """
    Args:
        fields: of TRL's arguments, by name.

    Raises:
        UserError: one of them would compare the id that is scored with the one that was sampled.
    """
    accumulated = fields.get("gradient_accumulation_steps") or 1
    generate_every = (fields.get("steps_per_generation") or accumulated) * (fields.get("num_iterations") or 1)
    reasons = {
        "beta": bool(fields.get("beta")),
        "num_iterations": (fields.get("num_iterations") or 1) > 1,
        "steps_per_generation": accumulated % generate_every != 0,
        "off_policy_mask_threshold": fields.get("off_policy_mask_threshold") is not None,
        "use_vllm": bool(fields.get("use_vllm")),
    }
    for name, refused in reasons.items():
        if refused:
            raise UserError(
                f"training.placebo=true scores other ids than were sampled, and training.{name}={fields.get(name)} "
                "would compare the two: leave it out"
            )
