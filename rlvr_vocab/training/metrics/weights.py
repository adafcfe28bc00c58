"""The parameters of a model in groups, and the share of them that an update changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import reduce
from peft.tuners.lora import LoraLayer
from torch import nn
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback, TrainerControl, TrainerState

from rlvr_vocab.vocab.adapter import TrainedRows

_SAMPLE_SIZE = 65_536  # values that are compared in each step

ADAPTER, LAYERS = "LoRA adapter", "layers"


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters under one name; either all of them train or none."""

    name: str
    trains: bool
    parameters: tuple[nn.Parameter, ...]

    @property
    def size(self) -> int:
        """Number of values over all processes; a byte of a 4-bit parameter holds two."""
        return sum(getattr(each, "ds_numel", each.numel()) * (2 if _is_4bit(each) else 1) for each in self.parameters)

    @property
    def dtypes(self) -> str:
        names = {"4-bit" if _is_4bit(each) else str(each.dtype).removeprefix("torch.") for each in self.parameters}
        return ", ".join(sorted(names))


def parameter_groups(model: Any) -> list[ParameterGroup]:
    """The parameters of a model: adapter, trained rows, embedding, head, layers; those that train first."""
    names = dict(_named_specially(model))
    members: dict[tuple[str, bool], list[nn.Parameter]] = defaultdict(list)
    for parameter in model.parameters():
        members[names.get(parameter, LAYERS), parameter.requires_grad].append(parameter)
    groups = [ParameterGroup(name, trains, tuple(found)) for (name, trains), found in members.items()]
    return sorted(groups, key=lambda group: not group.trains)


def parameter_table(groups: Sequence[ParameterGroup]) -> list[str]:
    """A line for each group: whether it trains, name, number of values, type."""
    width = max(len(group.name) for group in groups)
    return [
        f"{'trains' if group.trains else 'frozen'}  {group.name:<{width}}  {group.size:>13,}  {group.dtypes}"
        for group in groups
    ]


def _named_specially(model: Any) -> Iterator[tuple[nn.Parameter, str]]:
    for module in model.modules():
        if isinstance(module, LoraLayer):
            adapters = [getattr(module, name) for name in module.adapter_layer_names]
            yield from ((parameter, ADAPTER) for each in adapters for parameter in each.parameters())
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    tied = embedding.weight is head.weight
    yield head.weight, "head"
    yield embedding.weight, "embedding and head" if tied else "embedding"
    if getattr(head, "bias", None) is not None:
        yield head.bias, "bias of the head"
    for parameter_name, parameter in model.named_parameters():
        if ".difference" in parameter_name:
            yield parameter, "differences of the reasoning rows"
    if isinstance(embedding, TrainedRows) and isinstance(head, TrainedRows):
        which = "rows" if embedding.first == 0 else "reasoning rows"
        yield head.parameter, f"{which} of the head"
        yield embedding.parameter, f"{which} of embedding and head" if tied else f"{which} of the embedding"


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """The part that this process holds."""
    if hasattr(tensor, "ds_tensor"):  # of ZeRO-3, which leaves the parameter itself empty
        return tensor.ds_tensor
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _is_4bit(parameter: nn.Parameter) -> bool:
    return type(parameter).__name__ == "Params4bit"  # of bitsandbytes, which need not be installed


class UpdatedShare(TrainerCallback):
    """Logs `weights/moved` of every step: the share of sampled values that its update changed.

    It shows a learning rate that is too small for the type of the weights. Embedding and head are left out where
    anything else trains: a batch touches few of their rows. Each process samples its own part.

    Args:
        metrics: the trainer's values of the next logged row, by name.
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
        changed = [(now != then).sum() for now, then in zip(after, self._before, strict=True)]
        counts = torch.tensor([sum(map(int, torch.stack(changed).tolist())), sum(map(len, after))], dtype=torch.float64)
        total = reduce(counts.to(after[0].device), reduction="sum").tolist()
        self._metrics["weights/moved"].append(total[0] / total[1])
        self._before = []


def sampled_parameters(groups: Sequence[ParameterGroup]) -> list[nn.Parameter]:
    """The trained parameters without embedding and head; these where nothing else trains."""
    trained = [group for group in groups if group.trains]
    inner = [group for group in trained if group.name in (ADAPTER, LAYERS)]
    return [parameter for group in inner or trained for parameter in group.parameters]


def every_nth_value(parameters: Sequence[torch.Tensor], count: int) -> list[torch.Tensor]:
    """Copies of about `count` values, every n-th of all: a tensor for each parameter."""
    parts = [local_part(parameter).detach().reshape(-1) for parameter in parameters]
    every, passed, sampled = -(-sum(map(len, parts)) // count) or 1, 0, []
    for part in parts:
        sampled.append(part[-passed % every :: every].clone())
        passed += len(part)
    return sampled
