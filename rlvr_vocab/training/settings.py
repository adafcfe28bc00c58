"""The settings of what trains, as plain dataclasses; needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Lt

from rlvr_vocab.bounds import Count, NotNegative, Share, Whole
from rlvr_vocab.text import pluralize

# What the KL to the initial model compares where one text has several ids.
KLOver = Literal["text", "ids"]


@dataclass(frozen=True)
class UntilSettings:
    """Ends a stage early: the mean of `metric` over the last `window` logged steps is above, or below, a value."""

    metric: str
    above: float | None = None
    below: float | None = None
    window: Count = 20

    def reached(self, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Whether the last rows reach it; rows without the metric are passed over.

        A trainer's history has `eval_accuracy` for what a run logs as `eval/accuracy`.

        >>> UntilSettings("reward", above=0.5, window=2).reached([{"reward": 0.0}, {"reward": 0.5}, {"reward": 0.7}])
        True
        """
        name = self.metric.replace("eval/", "eval_") if self.metric.startswith("eval/") else self.metric
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
    """Which problems are drawn, by how those before were answered.

    Attributes:
        skip_solved: a problem all of whose completions were right so many times in a row is not drawn again.
    """

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
    """How long to learn from worked solutions before GRPO.

    Attributes:
        max_steps: 0 for none.
        until_accuracy: stop at the first check that samples at least this accuracy.
        check_every: steps between checks.
        num_check_problems: problems of a check, on which nothing is learnt.
    """

    max_steps: Annotated[Whole, Ge(0)]
    batch_size: Count = 64
    learning_rate: NotNegative = 2e-3
    until_accuracy: Share | None = None
    check_every: Count = 20
    num_check_problems: Annotated[Whole, Ge(0)] = 0


@dataclass(frozen=True)
class Lora:
    """What trains in place of the model's own weights.

    Attributes:
        target_modules: names of the modules that get an adapter, or `all-linear`: every linear layer but the head.
        lora_dropout: share of an adapter's inputs that an update does without; sampling and scoring know no dropout.
        train_rows: which rows of embedding and head train as well.
        enabled: what the configuration says; None: on where nothing else can train, off elsewhere.
    """

    r: Count = 16
    lora_alpha: Count = 32
    target_modules: Literal["all-linear"] | tuple[str, ...] = "all-linear"
    lora_dropout: Annotated[float, Ge(0), Lt(1)] = 0.05
    train_rows: Literal["reasoning", "all", "none"] = "reasoning"
    enabled: bool | None = None
