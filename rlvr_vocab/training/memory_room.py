"""What takes the room on a device: weights, gradients and optimizer state of a trainer, and what the device says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

_GIB = 2**30


@dataclass(frozen=True)
class DeviceRoom:
    """Bytes of one GPU.

    Attributes:
        allocated: what torch has given to the tensors of this process.
        elsewhere: what other processes and CUDA itself hold.
    """

    total: int
    allocated: int
    elsewhere: int


@dataclass(frozen=True)
class Room:
    """Bytes that a trainer's tensors take.

    Attributes:
        weights: of the model that trains and of the reference, where there is one.
        device: None without a GPU.
    """

    weights: int
    gradients: int
    optimizer: int
    device: DeviceRoom | None

    @property
    def fixed(self) -> int:
        """What is there whatever the batch is."""
        return self.weights + self.gradients + self.optimizer

    @property
    def rest(self) -> int | None:
        """Activations, logits, the cache of sampling; None without a GPU."""
        return None if self.device is None else max(0, self.device.allocated - self.fixed)


def room_of(trainer: Any) -> Room:
    """What the tensors of a trainer take on its device."""
    device = trainer.accelerator.device
    models = [trainer.model, getattr(trainer, "ref_model", None)]
    weights = [tensor for model in models if model is not None for tensor in _tensors_of(model)]
    gradients = [tensor.grad for tensor in trainer.model.parameters() if tensor.grad is not None]
    return Room(
        weights=_bytes_on(device, weights),
        gradients=_bytes_on(device, gradients),
        optimizer=_bytes_on(device, _state_of(trainer.optimizer)),
        device=device_room(device),
    )


def device_room(device: torch.device | None = None) -> DeviceRoom | None:
    """What a GPU says of itself, by default the current one; None where there is none."""
    if not torch.cuda.is_available() or (device is not None and device.type != "cuda"):
        return None
    free, total = torch.cuda.mem_get_info(device)
    elsewhere = max(0, total - free - torch.cuda.memory_reserved(device))
    return DeviceRoom(total, torch.cuda.memory_allocated(device), elsewhere)


def gib(size: int) -> str:
    return f"{size / _GIB:,.1f}"


def _tensors_of(model: torch.nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]


def _state_of(optimizer: Any) -> list[torch.Tensor]:
    if optimizer is None:  # made when the training begins
        return []
    return [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]


def _bytes_on(device: torch.device, tensors: Iterable[torch.Tensor]) -> int:
    """Of the tensors of a device, each storage once: tied weights are one, and a shard is only its own part."""
    local = [getattr(tensor, "_local_tensor", tensor) for tensor in tensors]
    storages = {
        storage.data_ptr(): storage.nbytes()
        for tensor in local
        if tensor.device.type == device.type
        for storage in [tensor.untyped_storage()]
    }
    return sum(storages.values())
