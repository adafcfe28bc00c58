"""The settings of what trains, as plain dataclasses; needs no torch."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Lt, MinLen

from rlvr_vocab.bounds import Count, NotNegative, Share, WholeFrom0
from rlvr_vocab.errors import UserError
from rlvr_vocab.text import pluralize

# The distribution whose KL to the initial model counts, where one text has several ids.
KLOver = Literal["text", "ids"]


@dataclass(frozen=True)
class UntilSettings:
    """Ends a stage early: the mean of `metric` over the last `window` logged steps is above, or below, a value."""

    metric: str
    above: float | None = None
    below: float | None = None
    window: Count = 20

    def reached(self, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Whether the last rows that have the metric reach it.

        >>> UntilSettings("reward", above=0.5, window=2).reached([{"reward": 0.0}, {"reward": 0.5}, {"reward": 0.7}])
        True
        """
        name = self.metric.replace("eval/", "eval_")  # as a trainer's history names it
        values = [float(row[name]) for row in rows if name in row][-self.window :]
        if len(values) < self.window:
            return False
        mean = sum(values) / len(values)
        return mean > self.above if self.above is not None else self.below is not None and mean < self.below

    def __str__(self) -> str:
        bound = f"above {self.above}" if self.above is not None else f"below {self.below}"
        return f"{self.metric} {bound} over {pluralize(self.window, 'step')}"


@dataclass(frozen=True)
class CurriculumSettings:
    """A problem whose completions were all right `skip_solved` times in a row is not drawn again."""

    skip_solved: Count | None = None


@dataclass(frozen=True)
class TinyShape:
    """Size of the embedded model."""

    hidden_size: Count = 128
    intermediate_size: Count = 384
    num_layers: Count = 4
    num_heads: Count = 4
    num_kv_heads: Count = 2
    head_dim: Count = 32


@dataclass(frozen=True)
class WarmupSettings:
    """Supervised steps on worked solutions before GRPO, until a check samples at least `until_accuracy`.

    A check comes every `check_every` steps, on `num_check_problems` problems that are not trained on.
    """

    max_steps: WholeFrom0
    batch_size: Count = 64
    learning_rate: NotNegative = 2e-3
    until_accuracy: Share | None = None
    check_every: Count = 20
    num_check_problems: WholeFrom0 = 0


@dataclass(frozen=True)
class Lora:
    """A LoRA adapter, trained in place of the model's own weights.

    Attributes:
        target_modules: names of the modules that get an adapter, or `all-linear`: every linear layer but the head.
        lora_dropout: dropout of the adapter in the loss; sampling and scoring have none.
        train_rows: the rows of embedding and head that train as well.
        enabled: None: on where nothing else can train, off elsewhere.
    """

    r: Count = 16
    lora_alpha: Count = 32
    target_modules: Literal["all-linear"] | Annotated[tuple[str, ...], MinLen(1)] = "all-linear"
    lora_dropout: Annotated[float, Ge(0), Lt(1)] = 0.05
    train_rows: Literal["reasoning", "all", "none"] = "reasoning"
    enabled: bool | None = None


def completions_together(grpo: Mapping[str, Any], processes: int | None = None) -> tuple[int, int]:
    """Completions at once over all processes, and steps of so many that are drawn together."""
    at_once = grpo["per_device_train_batch_size"] * (processes or int(os.environ.get("WORLD_SIZE", "1")))
    if grpo["generation_batch_size"] is not None:
        return at_once, grpo["generation_batch_size"] // at_once
    return at_once, grpo["steps_per_generation"] or grpo["gradient_accumulation_steps"]


def check_batches(grpo: Mapping[str, Any], processes: int | None = None, key: str = "") -> None:
    """UserError, with values that work, where whole groups cannot be drawn together.

    `processes` is None for those that a launcher has begun; `key` stands before the names of fields.
    """
    at_once, steps = completions_together(grpo, processes)
    group, batch, together = grpo["num_generations"], grpo["generation_batch_size"], at_once * steps
    if batch is not None and batch % at_once:
        raise UserError(f"{key}generation_batch_size={batch}: must be a multiple of {at_once} completions at once")
    if together % group:
        if batch is not None:
            units = {"generation_batch_size": (batch, math.lcm(at_once, group))}
        else:
            counts = {"per_device_train_batch_size": grpo["per_device_train_batch_size"], "steps_per_generation": steps}
            units = {name: (count, group // math.gcd(together // count, group)) for name, count in counts.items()}
        values = {name: unit * -(-count // unit) for name, (count, unit) in units.items()}
        smaller = max((size for size in range(2, group) if together % size == 0), default=None)
        values |= {} if smaller is None else {"num_generations": smaller}
        raise UserError(
            f"{key}num_generations={group} does not divide the {together} completions drawn together ({at_once} at "
            f"once, {pluralize(steps, 'step')} per generation): set "
            + ", or ".join(f"{key}{name}={value}" for name, value in values.items())
        )
