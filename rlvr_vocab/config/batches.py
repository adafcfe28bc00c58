"""The rules of GRPOConfig about batch sizes, before a model is loaded."""

import math
import os
from collections.abc import Mapping
from typing import Any

from rlvr_vocab.config.grpo_fields import GRPO_FIELDS
from rlvr_vocab.errors import UserError

_MOST_HELD_OUT = 256
MOST_ADVISED = 64  # a group of more completions than that is nobody's wish


def check_batches(grpo: Mapping[str, Any], processes: int | None = None) -> None:
    """The rules of GRPOConfig.__post_init__ about batch sizes, before a model is loaded.

    Args:
        processes: that train together; None: those that a launcher has begun.
    """
    group, (at_once, steps) = value_of(grpo, "num_generations"), completions_together(grpo, processes)
    batch = value_of(grpo, "generation_batch_size")
    if group < 2:
        raise UserError(f"training.num_generations={group}: must be at least 2, rewards are compared within a group")
    if value_of(grpo, "steps_per_generation") is not None and batch is not None:
        raise UserError("training.steps_per_generation and training.generation_batch_size: set one of them")
    if value_of(grpo, "auto_find_batch_size"):
        raise UserError("training.auto_find_batch_size=true: a smaller batch would split groups; set the batch size")
    if batch is not None and batch % at_once:
        raise UserError(f"training.generation_batch_size={batch}: must be a multiple of {at_once} completions at once")
    if at_once * steps % group:
        raise UserError(indivisible(at_once, steps, group, in_steps=batch is None))


def completions_together(grpo: Mapping[str, Any], processes: int | None = None) -> tuple[int, int]:
    """Completions at once over all processes, and steps of so many that are drawn together."""
    processes = processes or int(os.environ.get("WORLD_SIZE", "1"))
    at_once = value_of(grpo, "per_device_train_batch_size") * processes
    batch = value_of(grpo, "generation_batch_size")
    if batch is not None:
        return at_once, batch // at_once
    return at_once, value_of(grpo, "steps_per_generation") or value_of(grpo, "gradient_accumulation_steps")


def held_out_batch(grpo: Mapping[str, Any]) -> int:
    """Held-out problems that a process answers at a time: with no gradients more fit than are trained on."""
    return int(min(_MOST_HELD_OUT, 8 * value_of(grpo, "per_device_train_batch_size")))


def indivisible(at_once: int, steps: int, group: int, in_steps: bool) -> str:
    """Which numbers would work instead; `in_steps`: whether the batch was set as steps, or as completions."""
    batch, unit = at_once * steps, group // math.gcd(at_once, group)
    field, each = ("steps_per_generation", 1) if in_steps else ("generation_batch_size", at_once)
    divisors = [str(size) for size in range(2, min(batch, MOST_ADVISED) + 1) if batch % size == 0]
    groups = f", or training.num_generations={' or '.join(divisors[:6])}" if divisors else ""
    return (
        f"training.num_generations={group} does not divide the {batch} completions drawn together "
        f"({at_once} at once, {steps} steps per generation): "
        f"set training.{field}={unit * -(-steps // unit) * each} (a multiple of {unit * each}){groups}"
    )


def value_of(grpo: Mapping[str, Any], name: str) -> Any:
    """What a field of GRPOConfig will be; TRL's default where it is not set."""
    given = grpo.get(name)
    return GRPO_FIELDS[name].default if given is None else given
