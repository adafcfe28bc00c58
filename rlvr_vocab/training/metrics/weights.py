"""The parameters of a model by kind, and the share of them that an update changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from accelerate.utils import reduce
from torch import nn
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback, TrainerControl, TrainerState

from rlvr_vocab.vocab.weights import ROWS_KEY

_SAMPLE_SIZE = 65_536  # values that are compared in each step
ADAPTER, ROWS, TABLES, LAYERS = "LoRA adapter", "rows of the vocabulary", "embedding and head", "layers"

# Parameters by whether they train, and by kind.
Groups = dict[tuple[bool, str], list[nn.Parameter]]


def parameter_groups(model: Any) -> Groups:
    """All parameters of a model, each in one group; rows that train beside an adapter are ROWS."""
    of_tables = {*model.get_input_embeddings().parameters(), *model.get_output_embeddings().parameters()}
    groups: Groups = defaultdict(list)
    for name, parameter in model.named_parameters():
        if ROWS_KEY in name or ".difference" in name:
            kind = ROWS
        elif "lora_" in name:
            kind = ADAPTER
        else:
            kind = TABLES if parameter in of_tables else LAYERS
        groups[parameter.requires_grad, kind].append(parameter)
    return groups


def parameter_table(model: Any) -> list[str]:
    """A line for each group, those that train first: whether it trains, kind, number of values, type."""
    lines = []
    for (trains, kind), parameters in sorted(parameter_groups(model).items(), reverse=True):
        values = sum(getattr(each, "ds_numel", each.numel()) * (2 if _is_4bit(each) else 1) for each in parameters)
        types = {"4-bit" if _is_4bit(each) else str(each.dtype).removeprefix("torch.") for each in parameters}
        lines.append(f"{'trains' if trains else 'frozen'}  {kind:<22}  {values:>13,}  {', '.join(sorted(types))}")
    return lines


def _is_4bit(parameter: nn.Parameter) -> bool:
    """Whether a byte of it holds two values; bitsandbytes need not be installed."""
    return type(parameter).__name__ == "Params4bit"


class UpdatedShare(TrainerCallback):
    """Logs `weights/moved` of every step: the share of sampled values that its update changed.

    It shows a learning rate that is too small for the type of the weights. Embedding and head are left out where
    anything else trains: a batch touches few of their rows. Each process samples its own part.
    """

    def __init__(self, metrics: dict[str, list[float]]) -> None:
        self._metrics = metrics
        self._parameters: list[nn.Parameter] = []
        self._before: list[torch.Tensor] = []

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, model: Any, **_: Any) -> None:
        self._parameters = sampled_parameters(parameter_groups(model))

    # `on_pre_optimizer_step` is too late: DeepSpeed has updated by then.
    def on_step_begin(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._before = every_nth_value(self._parameters, _SAMPLE_SIZE)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        after = every_nth_value(self._parameters, _SAMPLE_SIZE)
        changed = torch.stack([(now != then).sum() for now, then in zip(after, self._before, strict=True)]).sum()
        of_all = reduce(torch.stack([changed, changed.new_tensor(sum(map(len, after)))]), reduction="sum")
        moved, sampled = of_all.tolist()
        self._metrics["weights/moved"].append(moved / sampled)
        self._before = []


def sampled_parameters(groups: Groups) -> list[nn.Parameter]:
    """The trained parameters without embedding and head; these where nothing else trains."""
    inner = [each for kind in (ADAPTER, LAYERS) for each in groups.get((True, kind), ())]
    return inner or [each for (trains, _), parameters in groups.items() if trains for each in parameters]


def every_nth_value(parameters: Sequence[torch.Tensor], count: int) -> list[torch.Tensor]:
    """Copies of about `count` values that this process holds, every n-th of all: a tensor for each parameter."""
    held = [getattr(each, "ds_tensor", each) for each in parameters]  # ZeRO-3 leaves the parameter itself empty
    parts = [(each.to_local() if isinstance(each, DTensor) else each).detach().reshape(-1) for each in held]
    every, passed, sampled = -(-sum(map(len, parts)) // count) or 1, 0, []
    for part in parts:
        sampled.append(part[-passed % every :: every].clone())
        passed += len(part)
    return sampled
