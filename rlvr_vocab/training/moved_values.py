"""Which share of the trained values an update changes, told by a fixed sample of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from accelerate.utils import reduce
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rlvr_vocab.training.movement import ADAPTER, INTEGERS, LAYERS, ParameterGroup, local_part, parameter_groups

_SAMPLE_SIZE = 65_536


class MovedValues(TrainerCallback):
    """Logs `weights/moved` for every step: the share of sampled values that its update changed.

    A row of several steps holds their mean. A learning rate that is too small for the type of the weights shows here:
    the values are rounded to what they were. Embedding and head are left out where anything else trains: most of
    their rows belong to tokens that a batch has nothing to do with. Each process samples what it holds itself.

    Args:
        metrics: where the trainer collects the values of a row, by name.
    """

    def __init__(self, metrics: dict[str, list[float]]) -> None:
        self._metrics = metrics
        self._parameters: list[nn.Parameter] = []
        self._before: list[torch.Tensor] = []

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: nn.Module, **_: Any
    ) -> None:
        self._parameters = watched_parameters(parameter_groups(model))

    # Not just before the optimizer's step: DeepSpeed has taken it by then.
    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._before = evenly_spread(self._parameters, _SAMPLE_SIZE)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        after = evenly_spread(self._parameters, _SAMPLE_SIZE)
        changed = [(now != then).sum() for now, then in zip(after, self._before, strict=True)]
        counts = torch.tensor([sum(map(int, torch.stack(changed).tolist())), sum(map(len, after))], dtype=torch.float64)
        total = reduce(counts.to(after[0].device), reduction="sum").tolist()
        self._metrics["weights/moved"].append(total[0] / total[1])
        self._before = []


def watched_parameters(groups: Sequence[ParameterGroup]) -> list[nn.Parameter]:
    """What trains beside embedding and head; those where nothing else does."""
    trained = [group for group in groups if group.trains]
    inner = [group for group in trained if group.name in (ADAPTER, LAYERS)]
    return [parameter for group in inner or trained for parameter in group.parameters]


def evenly_spread(parameters: Sequence[torch.Tensor], count: int) -> list[torch.Tensor]:
    """About `count` values, always the same ones: every n-th of all, as copies of their bits, a tensor a parameter."""
    parts = [local_part(parameter).detach().reshape(-1) for parameter in parameters]
    every, passed, sampled = -(-sum(map(len, parts)) // count) or 1, 0, []
    for part in parts:
        sampled.append(part[-passed % every :: every].clone().view(INTEGERS[part.element_size()]))
        passed += len(part)
    return sampled
