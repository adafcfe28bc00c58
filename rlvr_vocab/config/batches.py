"""How many completions are drawn together, and whether whole groups fit into them."""

import math
import os
from collections.abc import Mapping
from typing import Any

from rlvr_vocab.errors import UserError

_MOST_HELD_OUT = 256
_MOST_ADVISED = 64  # a group of more completions than that is nobody's wish


def check_batches(grpo: Mapping[str, Any], processes: int | None = None) -> None:
    """Refuses batches that GRPOConfig refuses, before a model is loaded, with numbers that would work.

    Args:
        processes: that train together; None: those that a launcher has begun.
    """
    at_once, steps = completions_together(grpo, processes)
    group, batch = grpo["num_generations"], grpo["generation_batch_size"]
    if grpo["steps_per_generation"] is not None and batch is not None:
        raise UserError("training.steps_per_generation and training.generation_batch_size: set one of them")
    if grpo.get("auto_find_batch_size"):
        raise UserError("training.auto_find_batch_size=true: a smaller batch would split groups; set the batch size")
    if batch is not None and batch % at_once:
        raise UserError(f"training.generation_batch_size={batch}: must be a multiple of {at_once} completions at once")
    if at_once * steps % group == 0:
        return
    unit = group // math.gcd(at_once, group)
    field, each = ("steps_per_generation", 1) if batch is None else ("generation_batch_size", at_once)
    divisors = [size for size in range(2, min(at_once * steps, _MOST_ADVISED) + 1) if at_once * steps % size == 0]
    groups = f", or training.num_generations={' or '.join(map(str, divisors[:6]))}" if divisors else ""
    raise UserError(
        f"training.num_generations={group} does not divide the {at_once * steps} completions drawn together "
        f"({at_once} at once, {steps} steps per generation): "
        f"set training.{field}={unit * -(-steps // unit) * each} (a multiple of {unit * each}){groups}"
    )


def completions_together(grpo: Mapping[str, Any], processes: int | None = None) -> tuple[int, int]:
    """Completions at once over all processes, and steps of so many that are drawn together."""
    at_once = grpo["per_device_train_batch_size"] * (processes or int(os.environ.get("WORLD_SIZE", "1")))
    if grpo["generation_batch_size"] is not None:
        return at_once, grpo["generation_batch_size"] // at_once
    return at_once, grpo["steps_per_generation"] or grpo["gradient_accumulation_steps"]


def held_out_batch(grpo: Mapping[str, Any]) -> int:
    """Held-out problems that a process answers at a time: with no gradients more fit than are trained on."""
    return int(min(_MOST_HELD_OUT, 8 * grpo["per_device_train_batch_size"]))
