"""What `training.placebo` cannot stand beside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlvr_vocab.errors import UserError

# Of TRL's arguments, those that decide.
PLACEBO_FIELDS = (
    *("beta", "num_iterations", "gradient_accumulation_steps", "steps_per_generation"),
    *("off_policy_mask_threshold", "use_vllm"),
)


def refuse_beside_placebo(fields: Mapping[str, Any], kl_over: str) -> None:
    """
    Args:
        fields: `PLACEBO_FIELDS` by name, as they will be.

    Raises:
        UserError: one of them would compare the id that is scored with the one that was sampled.
    """
    beta, iterations, accumulated, together, threshold, vllm = (fields[name] for name in PLACEBO_FIELDS)
    reasons = {
        f"beta={beta} with training.kl_over={kl_over}": bool(beta) and kl_over == "ids",
        f"num_iterations={iterations}": iterations > 1,
        f"steps_per_generation={together}": accumulated % (together * iterations) != 0,
        f"off_policy_mask_threshold={threshold}": threshold is not None,
        "use_vllm=true": bool(vllm),
    }
    for words, refused in reasons.items():
        if refused:
            raise UserError(
                f"training.placebo=true scores other ids than were sampled, and training.{words} would compare the two"
            )
