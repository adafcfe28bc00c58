"""The rules of GRPOConfig about batch sizes, before a model is loaded."""

import math
import os
from collections.abc import Mapping
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.exp.grpo_fields import GRPO_FIELDS


def check_batches(grpo: Mapping[str, Any]) -> None:
    """The rules of GRPOConfig.__post_init__ about batch sizes, before a model is loaded."""

    def value(name: str) -> Any:
        given = grpo.get(name)
        return GRPO_FIELDS[name].default if given is None else given

    processes = int(os.environ.get("WORLD_SIZE", "1"))
    group, at_once = value("num_generations"), value("per_device_train_batch_size") * processes
    steps, batch = value("steps_per_generation"), value("generation_batch_size")
    if group < 2:
        raise UserError(f"training.num_generations={group}: must be at least 2, rewards are compared within a group")
    if steps is not None and batch is not None:
        raise UserError("training.steps_per_generation and training.generation_batch_size: set one of them")
    if value("auto_find_batch_size"):
        raise UserError("training.auto_find_batch_size=true: a smaller batch would split groups; set the batch size")
    if batch is not None and batch % at_once:
        raise UserError(f"training.generation_batch_size={batch}: must be a multiple of {at_once} completions at once")
    steps = steps or value("gradient_accumulation_steps")
    if (batch or at_once * steps) % group:
        raise UserError(indivisible(at_once, steps, batch or at_once * steps, group))


def indivisible(at_once: int, steps: int, batch: int, group: int) -> str:
    """Which numbers would work instead."""
    unit = group // math.gcd(at_once, group)
    divisors = [str(size) for size in range(2, batch + 1) if batch % size == 0]
    groups = f", or training.num_generations={' or '.join(divisors[:6])}" if divisors else ""
    return (
        f"training.num_generations={group} does not divide the {batch} completions drawn together "
        f"({at_once} at once, {steps} steps per generation): "
        f"set training.steps_per_generation={unit * -(-steps // unit)} (a multiple of {unit}){groups}"
    )
