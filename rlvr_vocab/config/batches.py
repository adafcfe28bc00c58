"""The rules of GRPOConfig about batch sizes, before a model is loaded."""

import math
import os
from collections.abc import Mapping
from typing import Any

from rlvr_vocab.config.grpo_fields import GRPO_FIELDS
from rlvr_vocab.errors import UserError


def check_batches(grpo: Mapping[str, Any]) -> None:
    """The rules of GRPOConfig.__post_init__ about batch sizes, before a model is loaded."""
    group, (at_once, steps) = _value(grpo, "num_generations"), completions_together(grpo)
    batch = _value(grpo, "generation_batch_size")
    if group < 2:
        raise UserError(f"training.num_generations={group}: must be at least 2, rewards are compared within a group")
    if _value(grpo, "steps_per_generation") is not None and batch is not None:
        raise UserError("training.steps_per_generation and training.generation_batch_size: set one of them")
    if _value(grpo, "auto_find_batch_size"):
        raise UserError("training.auto_find_batch_size=true: a smaller batch would split groups; set the batch size")
    if batch is not None and batch % at_once:
        raise UserError(f"training.generation_batch_size={batch}: must be a multiple of {at_once} completions at once")
    if at_once * steps % group:
        raise UserError(indivisible(at_once, steps, at_once * steps, group, _decides(grpo)))


def completions_together(grpo: Mapping[str, Any]) -> tuple[int, int]:
    """Completions at once over all processes, and steps of so many that are drawn together."""
    at_once = _value(grpo, "per_device_train_batch_size") * int(os.environ.get("WORLD_SIZE", "1"))
    batch = _value(grpo, "generation_batch_size")
    if batch is not None:
        return at_once, batch // at_once
    return at_once, _value(grpo, "steps_per_generation") or _value(grpo, "gradient_accumulation_steps")


def smaller_batch(grpo: Mapping[str, Any], problems: int) -> str:
    """The largest batch of whole groups from no more than so many problems, as it is typed; empty for none."""
    at_once, steps = completions_together(grpo)
    group = _value(grpo, "num_generations")
    for fewer in range(steps, 0, -1):
        if at_once * fewer % group == 0 and at_once * fewer <= problems * group:
            return _steps_typed(_decides(grpo), fewer, at_once)
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    sizes = [size for size in range(1, at_once // processes + 1) if size * processes * steps % group == 0]
    fitting = [size for size in sizes if size * processes * steps <= problems * group]
    if not fitting or _decides(grpo) == "generation_batch_size":
        return ""
    return f"training.per_device_train_batch_size={fitting[-1]}"


def indivisible(at_once: int, steps: int, batch: int, group: int, decides: str) -> str:
    """Which numbers would work instead."""
    unit = group // math.gcd(at_once, group)
    divisors = [str(size) for size in range(2, batch + 1) if batch % size == 0]
    groups = f", or training.num_generations={' or '.join(divisors[:6])}" if divisors else ""
    return (
        f"training.num_generations={group} does not divide the {batch} completions drawn together "
        f"({at_once} at once, {steps} steps per generation): "
        f"set {_steps_typed(decides, unit * -(-steps // unit), at_once)} (a multiple of "
        f"{unit if decides == 'steps_per_generation' else unit * at_once}){groups}"
    )


def _decides(grpo: Mapping[str, Any]) -> str:
    """The field that says how many completions are drawn together."""
    return "steps_per_generation" if _value(grpo, "generation_batch_size") is None else "generation_batch_size"


def _steps_typed(decides: str, steps: int, at_once: int) -> str:
    return f"training.{decides}={steps if decides == 'steps_per_generation' else steps * at_once}"


def _value(grpo: Mapping[str, Any], name: str) -> Any:
    given = grpo.get(name)
    return GRPO_FIELDS[name].default if given is None else given
