"""The parameters of a model in groups, and checks that those which should train change."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import gather_object, reduce
from peft.tuners.lora import LoraLayer
from torch import nn
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.peft.trained_rows import TrainedRows

logger = logging.getLogger(__name__)

# Values that are compared: of a whole model in each step, of a group when it is checked.
_SAMPLE_SIZE, _VALUES_OF_A_GROUP = 65_536, 2**20

ADAPTER, LAYERS = "LoRA adapter", "layers"


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters that a run speaks of by one name; either all of them train or none."""

    name: str
    trains: bool
    parameters: tuple[nn.Parameter, ...]

    @property
    def size(self) -> int:
        """Number of values, wherever they lie; those of a 4-bit parameter lie two in a byte."""
        return sum(getattr(each, "ds_numel", each.numel()) * (2 if _is_4bit(each) else 1) for each in self.parameters)

    @property
    def dtypes(self) -> str:
        names = {"4-bit" if _is_4bit(each) else str(each.dtype).removeprefix("torch.") for each in self.parameters}
        return ", ".join(sorted(names))


def parameter_groups(model: Any) -> list[ParameterGroup]:
    """The parameters of a model by what they are: adapter, trained rows, embedding, head, layers; trained first."""
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


class UpdateCheck(TrainerCallback):
    """Stops a run in which a group that should train stays as it was in an update with a gradient.

    A group is checked once, in the rows whose gradient is largest, at a learning rate above zero; each process checks
    the part that it holds. Not under DeepSpeed, which shows no gradients.

    Attributes:
        waiting: the groups that have not been checked yet.
    """

    def __init__(self) -> None:
        self.waiting: list[ParameterGroup] = []
        self._before: dict[str, list[tuple[nn.Parameter, torch.Tensor, torch.Tensor]]] = {}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **of_trainer: Any
    ) -> None:
        if args.deepspeed_plugin is not None:  # which hands its optimizer flat copies of the parameters
            return
        self.waiting = [group for group in parameter_groups(of_trainer["model"]) if group.trains]
        held = {id(each) for group in of_trainer["optimizer"].param_groups for each in group["params"]}
        for group in self.waiting:
            if missing := sum(id(parameter) not in held for parameter in group.parameters):
                raise UserError(f"{group.name} should train, and the optimizer lacks {missing} of its tensors")

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, optimizer: Any, **_: Any
    ) -> None:
        learns = any(group["lr"] > 0 for group in optimizer.param_groups)
        self._before = {group.name: rows_of_largest_gradient(group) for group in self.waiting if learns}

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, optimizer: Any, **_: Any
    ) -> None:
        if getattr(optimizer, "step_was_skipped", False):  # fp16 skips steps with infinite gradients
            return
        for name, rows in self._before.items():
            if rows and all(torch.equal(before, _as_rows(each)[places]) for each, places, before in rows):
                raise UserError(
                    f"{name} should train and did not change in an update with a gradient: either the optimizer does "
                    "not hold the parameters, or learning_rate is too small for their type"
                )
        self.waiting = [group for group in self.waiting if not self._before.get(group.name)]
        self._before = {}

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        names = gather_object([group.name for group in self.waiting])
        for name in sorted(name for name in set(names) if names.count(name) == args.world_size):
            logger.warning("%s: never updated, no gradient at a learning rate above 0", name)


def rows_of_largest_gradient(group: ParameterGroup) -> list[tuple[nn.Parameter, torch.Tensor, torch.Tensor]]:
    """Of each parameter whose gradient is not zero: the parameter, places of some of its rows, copies of them."""
    found = []
    for parameter in group.parameters:
        if parameter.grad is not None and (norms := _as_rows(parameter.grad).norm(dim=1)).any():
            values = _as_rows(parameter)
            count = _VALUES_OF_A_GROUP // (len(group.parameters) * values.size(1)) or 1
            places = norms.topk(min(count, len(norms))).indices
            found.append((parameter, places, values[places]))
    return found


def _as_rows(tensor: torch.Tensor) -> torch.Tensor:
    own = local_part(tensor).detach()
    return own.flatten(1) if own.dim() > 1 else own.reshape(1, -1)


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
        self._parameters = sampled_parameters(parameter_groups(model))

    # Not just before the optimizer's step: DeepSpeed has taken it by then.
    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._before = every_nth_value(self._parameters, _SAMPLE_SIZE)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        after = every_nth_value(self._parameters, _SAMPLE_SIZE)
        changed = [(now != then).sum() for now, then in zip(after, self._before, strict=True)]
        counts = torch.tensor([sum(map(int, torch.stack(changed).tolist())), sum(map(len, after))], dtype=torch.float64)
        total = reduce(counts.to(after[0].device), reduction="sum").tolist()
        self._metrics["weights/moved"].append(total[0] / total[1])
        self._before = []


def sampled_parameters(groups: Sequence[ParameterGroup]) -> list[nn.Parameter]:
    """What trains beside embedding and head; those where nothing else does."""
    trained = [group for group in groups if group.trains]
    inner = [group for group in trained if group.name in (ADAPTER, LAYERS)]
    return [parameter for group in inner or trained for parameter in group.parameters]


def every_nth_value(parameters: Sequence[torch.Tensor], count: int) -> list[torch.Tensor]:
    """About `count` values, always the same ones: every n-th of all, copied, a tensor a parameter."""
    parts = [local_part(parameter).detach().reshape(-1) for parameter in parameters]
    every, passed, sampled = -(-sum(map(len, parts)) // count) or 1, 0, []
    for part in parts:
        sampled.append(part[-passed % every :: every].clone())
        passed += len(part)
    return sampled
