"""The keys that make a run smaller, in the phase in which memory was not enough, and none that is set already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from peft import PeftModel

from rlvr_vocab.training.phase import Phase

# Optimizers whose state is an eighth of AdamW's or less, or lies in the CPU's memory.
_SMALL_STATE = ("8bit", "4bit", "adafactor", "sgd", "lomo", "galore", "apollo", "paged", "lion")
_LARGEST_NUMBER = 5
_SMALLEST_SHARE_OF_VLLM = 0.1


def settings_that_take_less(phase: Phase, room: Room, trainer: Any) -> list[str]:
    """Keys with values, as a user types them, the one that does most first."""
    found = list(_of_phase(phase, trainer))
    quantized = bool(getattr(trainer.model, "is_quantized", False))
    of_the_model = model_settings(adapter=isinstance(trainer.model, PeftModel), quantized=quantized)
    engine = list(_vllm_settings(trainer.args))
    weights_take_most = room.rest is not None and room.fixed > room.rest
    if weights_take_most or phase in ("loading", "optimizer", "saving"):
        found = [*found[:1], *of_the_model, *engine, *found[1:]]
    else:
        found += engine
    return list(dict.fromkeys(found))[:_LARGEST_NUMBER]


def model_settings(adapter: bool, quantized: bool) -> list[str]:
    """An adapter has few gradients; quantized weights, which only adapters go with, are a quarter or less.

    Args:
        adapter: an adapter is what trains already.
        quantized: the weights are quantized already.
    """
    lora = [] if adapter else ["model.lora.enabled=true"]
    bits = ["model.model_kwargs.load_in_4bit=true"] if not quantized and quantization_is_installed() else []
    return lora + bits


def _of_phase(phase: Phase, trainer: Any) -> Iterator[str]:
    if phase == "loading the reference":
        yield from _reference_settings(trainer)
    elif phase == "sampling":
        yield from _sampling_settings(trainer.args)
    elif phase in ("evaluating", "scoring"):
        yield from _batch_settings(trainer.args)
    elif phase in ("loss", "backward", "training"):
        yield from _update_settings(trainer.args)
    elif phase == "optimizer":
        yield from _optimizer_settings(trainer.args)


def quantization_is_installed() -> bool:
    return find_spec("bitsandbytes") is not None


def _sampling_settings(args: Any) -> Iterator[str]:
    """Sampled together are the batches of `steps_per_generation` forward passes, whatever is accumulated."""
    size, steps = args.per_device_train_batch_size, args.steps_per_generation
    batches = args.gradient_accumulation_steps
    fewer = _steps_that_hold_groups(args, size, batches, most=steps // 2)
    if fewer:
        yield f"training.steps_per_generation={fewer[-1]}"
    elif size % 2 == 0 and (fewer := _steps_that_hold_groups(args, size // 2, 2 * batches, most=steps)):
        yield f"{_halved(args)} and training.steps_per_generation={fewer[-1]}"
    yield _shorter(args)


def _steps_that_hold_groups(args: Any, size: int, batches: int, most: int) -> list[int]:
    """Steps per generation that draw whole groups, and divide an optimisation step: others train off the policy.

    Args:
        size: completions on each device at a step.
        batches: steps per optimisation step.
    """
    together = size * args.world_size
    return [few for few in range(1, most + 1) if batches % few == 0 and together * few % args.num_generations == 0]


def _batch_settings(args: Any) -> Iterator[str]:
    """Half the completions at once and twice the batches: the same optimisation step."""
    if args.per_device_train_batch_size % 2 == 0:
        together = args.steps_per_generation == args.gradient_accumulation_steps  # unless set, one follows the other
        yield _halved(args) + (
            "" if together else f" and training.steps_per_generation={2 * args.steps_per_generation}"
        )
    yield _shorter(args)
    if args.beta:
        yield "training.beta=0 (no reference model)"


def _halved(args: Any) -> str:
    size, batches = args.per_device_train_batch_size // 2, 2 * args.gradient_accumulation_steps
    return f"training.per_device_train_batch_size={size} with training.gradient_accumulation_steps={batches}"


def _shorter(args: Any) -> str:
    return f"training.max_completion_length={max(1, args.max_completion_length // 2)}"


def _update_settings(args: Any) -> Iterator[str]:
    if not args.gradient_checkpointing:
        yield "training.gradient_checkpointing=true"
    yield from _batch_settings(args)


def _optimizer_settings(args: Any) -> Iterator[str]:
    if not any(part in str(getattr(args.optim, "value", args.optim)) for part in _SMALL_STATE):
        yield f"training.optim={'adamw_8bit' if quantization_is_installed() else 'adafactor'}"


def _reference_settings(trainer: Any) -> Iterator[str]:
    if trainer.args.beta:
        yield "training.beta=0 (no reference model)"
    if getattr(trainer, "kl_log_steps", 0):
        yield "training.kl_log_steps=0 (no reference model)"


def _vllm_settings(args: Any) -> Iterator[str]:
    if not args.use_vllm or args.vllm_mode != "colocate":
        return
    share = args.vllm_gpu_memory_utilization
    if share / 2 >= _SMALLEST_SHARE_OF_VLLM:
        yield f"training.vllm_gpu_memory_utilization={share / 2:g}"
    if not args.vllm_enable_sleep_mode:
        yield "training.vllm_enable_sleep_mode=true"


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
