"""Fields of TRL and Transformers with which a run could not be interrupted and resumed as this project promises."""

from collections.abc import Mapping
from typing import Any

from rlvr_vocab.errors import UserError

# (field, its value, what to do instead and why)
REFUSED: tuple[tuple[str, Any, str], ...] = (
    ("sync_ref_model", True, "the moved reference lies in no checkpoint; leave it out"),
    ("ignore_data_skip", True, "a resumed run would be given its first problems again; leave it out"),
    ("enable_jit_checkpoint", True, "a run saves at signals by itself; leave it out"),
    (
        "logging_strategy",
        "epoch",
        "a resume would lose or double the row of an epoch's end; set logging_steps",
    ),
    ("eval_strategy", "epoch", "a resume would lose or double what is measured at an epoch's end; set steps"),
    ("eval_on_start", True, "every run is measured before it trains, in evaluation/before.jsonl; leave it out"),
    ("save_strategy", "best", "a signal would save nothing; set steps, and training.load_best_model_at_end=true"),
)


def check_resumable(grpo: Mapping[str, Any], *, staged: bool) -> None:
    """Refuse what would be lost or doubled by an interruption.

    Raises:
        UserError: naming the field and what to do instead.
    """
    for field, value, why in REFUSED:
        if grpo.get(field) == value:
            raise UserError(f"training.{field}={str(value).lower() if value is True else value}: {why}")
    if grpo.get("resume_from_checkpoint") is not None:
        raise UserError(f"training.resume_from_checkpoint: write resume={grpo['resume_from_checkpoint']}")
    looks_for_the_best = grpo.get("load_best_model_at_end") or grpo.get("metric_for_best_model")
    if looks_for_the_best and grpo.get("save_total_limit") == 1:
        raise UserError(
            "training.save_total_limit=1 keeps the best checkpoint and not the last, which a resume needs: at least 2"
        )
    if grpo.get("load_best_model_at_end") and staged:
        raise UserError("training.load_best_model_at_end: a stage begins where the one before ended; leave it out")
