"""The parameters of a model in groups, and checks that those which should train change, and no others."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
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

# What values are compared as, by their size in bytes: bit by bit.
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

_BLOCK = 2**20

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
        return sum(_numel(parameter) * (2 if _is_4bit(parameter) else 1) for parameter in self.parameters)

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
    """Stops a run in which a group that should train stays as it was, or a frozen one changes.

    A group is checked when it first has a gradient and the learning rate is above zero. DeepSpeed shows no gradients:
    there frozen groups are checked, and the end of the training warns of groups that never changed.

    Attributes:
        groups: those of the model, once training has begun.
        waiting: names of the groups that train and have had no gradient yet.
    """

    def __init__(self) -> None:
        self.groups: list[ParameterGroup] = []
        self.waiting: set[str] = set()
        self._due: set[str] = set()
        self._frozen_is_checked = False

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        **_: Any,
    ) -> None:
        self.groups = parameter_groups(model)
        if args.deepspeed_plugin is None:  # which hands its optimizer flat copies of the parameters
            _require_in_optimizer(self.groups, optimizer)
        self.waiting = {group.name for group in self.groups if group.trains}
        self._frozen_is_checked = False
        self._before = {(group.name, group.trains): fingerprint(group.parameters) for group in self.groups}

    def on_pre_optimizer_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        optimizer: torch.optim.Optimizer,
        **_: Any,
    ) -> None:
        learns = any(group["lr"] > 0 for group in optimizer.param_groups)
        due = {group.name for group in self.groups if group.name in self.waiting and has_gradient(group)}
        self._due = _of_any_process(due) if learns and self.waiting else set()

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, optimizer: Any, **_: Any
    ) -> None:
        shows_gradients = args.deepspeed_plugin is None
        nothing_due = not (self._due if shows_gradients else self.waiting)
        if nothing_due or getattr(optimizer, "step_was_skipped", False):  # fp16 skips steps with infinite gradients
            return
        changed = _of_any_process({group.name for group in self.groups if group.trains and self._has_changed(group)})
        if not shows_gradients:
            self._due = changed
        unchanged = sorted(self._due - changed)
        if unchanged:
            raise UserError(
                f"{' and '.join(unchanged)} should train and did not change in an update with a gradient: either the "
                "optimizer does not hold the parameters, or learning_rate is too small for their type"
            )
        if not self._frozen_is_checked:
            self._check_frozen()
        self.waiting -= self._due

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        for name in sorted(self.waiting):
            logger.warning("%s: never updated, no gradient at a learning rate above 0", name)

    def _check_frozen(self) -> None:
        changed = _of_any_process(
            {group.name for group in self.groups if not group.trains and self._has_changed(group)}
        )
        if changed:
            raise UserError(f"{' and '.join(sorted(changed))} should be frozen and changed in an update")
        self._frozen_is_checked = True

    def _has_changed(self, group: ParameterGroup) -> bool:
        return fingerprint(group.parameters) != self._before[group.name, group.trains]


def fingerprint(parameters: Iterable[torch.Tensor]) -> list[int]:
    """For each tensor the sum of its values' bits, read as integers: one changed value changes it, however little."""
    sums = []
    for parameter in parameters:
        bits = local_part(parameter).detach().view(INTEGERS[parameter.element_size()])
        sums.append(int(sum(block.sum(dtype=torch.int64) for block in _blocks(bits))))
    return sums


def _require_in_optimizer(groups: Sequence[ParameterGroup], optimizer: torch.optim.Optimizer) -> None:
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    for group in groups:
        missing = sum(id(parameter) not in held for parameter in group.parameters)
        if group.trains and missing:
            raise UserError(f"{group.name} should train, and the optimizer lacks {missing} of its tensors")


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


def has_gradient(group: ParameterGroup) -> bool:
    """Whether a gradient of any of its parameters is not zero everywhere."""
    gradients = [local_part(each.grad) for each in group.parameters if each.grad is not None]
    values = (each.coalesce().values() if each.is_sparse else each for each in gradients)
    return any(bool(block.any()) for each in values for block in _blocks(each))


def _blocks(tensor: torch.Tensor) -> Sequence[torch.Tensor]:
    """Its values, `_BLOCK` at a time: `sum` in another type and `any` first convert all values that they are given."""
    return tensor.flatten().split(_BLOCK)


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """The part that this process holds."""
    if hasattr(tensor, "ds_tensor"):  # of ZeRO-3, which leaves the parameter itself empty
        return tensor.ds_tensor
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _numel(parameter: nn.Parameter) -> int:
    return getattr(parameter, "ds_numel", parameter.numel())


def _of_any_process(names: Sequence[str] | set[str]) -> set[str]:
    return set(gather_object(sorted(names)))


def _is_4bit(parameter: nn.Parameter) -> bool:
    return type(parameter).__name__ == "Params4bit"  # of bitsandbytes, which need not be installed


_SAMPLE_SIZE = 65_536


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
    """About `count` values, always the same ones: every n-th of all, as copies of their bits, a tensor a parameter."""
    parts = [local_part(parameter).detach().reshape(-1) for parameter in parameters]
    every, passed, sampled = -(-sum(map(len, parts)) // count) or 1, 0, []
    for part in parts:
        sampled.append(part[-passed % every :: every].clone().view(INTEGERS[part.element_size()]))
        passed += len(part)
    return sampled
