"""A GPU without room, in one line: in which phase, what took the room, which keys take less, and what is saved."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from transformers import Trainer

from rlvr_vocab.errors import OutOfRoom
from rlvr_vocab.training.checkpoints import newest_checkpoint
from rlvr_vocab.training.memory_room import DeviceRoom, Room, device_room, gib, room_of
from rlvr_vocab.training.smaller_settings import Phase, model_settings, settings_that_take_less

# Phases, and the functions that are at work in each, as `function` or `end of the file:function`; the first that is
# found on the way to the error counts. `_engine_run_backward` is torch's, the others are TRL's, Transformers' and ours.
_AT_WORK: tuple[tuple[Phase, tuple[str, ...]], ...] = (
    ("saving", ("_save_checkpoint", "save_checkpoint", "save_model", "save_pretrained")),
    ("loading the reference", ("_load_reference",)),
    ("backward", ("_engine_run_backward",)),
    ("optimizer", ("accelerate/optimizer.py:step",)),
    ("loss", ("compute_loss",)),
    ("scoring", ("_get_per_token_logps_and_entropies",)),
    ("evaluating", ("sample_completions",)),
    ("sampling", ("_generate_single_turn", "generate")),
    ("loading", ("from_pretrained", "_load_from_checkpoint", "_load_optimizer_and_scheduler", "_move_model_to_device")),
)
# What CUDA and its libraries say where torch's own allocator is not asked.
_SAID_BY_CUDA = ("CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
_ASKED_FOR = re.compile(r"Tried to allocate ([\d.]+ [KMGT]iB)")
_WORTH_A_WORD = 2**30


@contextmanager
def naming_out_of_memory(
    trainer: Trainer | Callable[[], Trainer | None], already: Collection[str] = ()
) -> Iterator[None]:
    """Turn a GPU's lack of memory into the line that `out_of_memory` writes.

    Args:
        trainer: or what returns it once there is one.
        already: keys not to name, as long as there is no trainer to see from what is set.

    Raises:
        OutOfRoom: in place of torch's error, which is its cause.
    """
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and not any(text in str(error) for text in _SAID_BY_CUDA):
            raise
        found = trainer if isinstance(trainer, Trainer) else trainer()
        raise out_of_memory(error, found, already) from error


def out_of_memory(error: RuntimeError, trainer: Any, already: Collection[str] = ()) -> OutOfRoom:
    """One line on what was not possible, what took the room, what would take less, and what is saved.

    Args:
        trainer: None where the error came before there was one.
        already: keys not to name.
    """
    phase = phase_of(error.__traceback__, "loading" if trainer is None else "training")
    asked = _ASKED_FOR.search(str(error))
    more = f", {asked[1]} more were asked for" if asked else ""
    if trainer is None:
        parts = [f"CUDA out of memory while loading the model{more}{_device_words(device_room())}"]
        smaller = model_settings(adapter=False, quantized=False)
    else:
        room = room_of(trainer)
        parts = [f"CUDA out of memory {_phase_words(phase, trainer.args)}{more}: {_room_words(room)}"]
        smaller = settings_that_take_less(phase, room, trainer)
    smaller = [setting for setting in smaller if setting.partition("=")[0] not in already]
    if smaller:
        parts.append(f"smaller: {', '.join(smaller)}")
    if trainer is not None:
        parts.append(_saved_words(Path(trainer.args.output_dir)))
    return OutOfRoom("; ".join(parts))


def phase_of(trace: TracebackType | None, otherwise: Phase) -> Phase:
    """What was going on, from the functions on the way to an error."""
    frames = [(frame.f_code.co_filename, frame.f_code.co_name) for frame, _ in traceback.walk_tb(trace)]

    def is_at_work(where: str) -> bool:
        file, _, function = where.rpartition(":")
        return any(name == function and path.endswith(file) for path, name in frames)

    return next((phase for phase, places in _AT_WORK if any(map(is_at_work, places))), otherwise)


def _phase_words(phase: Phase, args: Any) -> str:
    size, length = args.per_device_train_batch_size, args.max_completion_length
    drawn = size * args.steps_per_generation
    words: dict[Phase, str] = {
        "loading": "while loading the model",
        "loading the reference": "while loading the reference model",
        "sampling": f"while sampling {drawn:,} completions of up to {length:,} tokens at once",
        "evaluating": f"while sampling answers of up to {length:,} tokens to held-out problems",
        "scoring": f"while scoring {size:,} completions of up to {length:,} tokens at once",
        "loss": f"in the forward pass of {size:,} completions of up to {length:,} tokens",
        "backward": f"in the backward pass of {size:,} completions of up to {length:,} tokens",
        "optimizer": "in the optimizer's step",
        "saving": "while saving a checkpoint",
        "training": "while training",
    }
    return words[phase]


def _room_words(room: Room) -> str:
    parts = f"weights {gib(room.weights)}, gradients {gib(room.gradients)}, optimizer {gib(room.optimizer)}"
    if room.device is None:
        return f"GiB of {parts}"
    rest = f"activations and cache {gib(room.rest or 0)}"
    return f"{gib(room.device.total)} GiB in all, of which {parts}, {rest}{_others(room.device)}"


def _device_words(device: DeviceRoom | None) -> str:
    if device is None:
        return ""
    return f": {gib(device.total)} GiB in all, of which this process holds {gib(device.allocated)}{_others(device)}"


def _others(device: DeviceRoom) -> str:
    return f", other processes and CUDA {gib(device.elsewhere)}" if device.elsewhere >= _WORTH_A_WORD else ""


def _saved_words(output_dir: Path) -> str:
    checkpoint = newest_checkpoint(output_dir)
    if checkpoint is None:
        return "no checkpoint was saved yet"
    return (
        f"{checkpoint.name} is intact, the same command goes on from it (keys that change stand in allow_changes=[…])"
    )
