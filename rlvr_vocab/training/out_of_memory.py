"""A GPU without room, in one line: in which phase, what took the room, which keys take less, and what is saved."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlvr_vocab.counted import counted
from rlvr_vocab.errors import OutOfRoom, is_out_of_memory
from rlvr_vocab.training.checkpointing.checkpoints import newest_checkpoint
from rlvr_vocab.training.memory_advice import (
    DeviceRoom,
    Room,
    device_room,
    gib,
    model_settings,
    room_of,
    settings_that_take_less,
)
from rlvr_vocab.training.phase import Phase

_ASKED_FOR = re.compile(r"Tried to allocate ([\d.]+ [KMGT]iB)")
_WORTH_A_WORD = 2**30


@contextmanager
def naming_out_of_memory(trainer: Callable[[], Any], already: Collection[str] = ()) -> Iterator[None]:
    """Turn a GPU's lack of memory into the line that `out_of_memory` writes.

    Args:
        trainer: returns the trainer, and None as long as there is none.
        already: keys not to name, as long as there is no trainer to see from what is set.

    Raises:
        OutOfRoom: in place of torch's error, which is its cause.
    """
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise out_of_memory(error, trainer(), already) from error


def out_of_memory(error: RuntimeError, trainer: Any, already: Collection[str] = ()) -> OutOfRoom:
    """One line on what was not possible, what took the room, what would take less, and what is saved.

    Args:
        trainer: None where the error came before there was one.
        already: keys not to name.
    """
    asked = _ASKED_FOR.search(str(error))
    more = f", {asked[1]} more were asked for" if asked else ""
    if trainer is None:
        parts = [f"CUDA out of memory while loading the model{more}{_device_words(device_room())}"]
        smaller = model_settings(adapter=False, quantized=False)
    else:
        room, phase = room_of(trainer), trainer.phases.current
        parts = [f"CUDA out of memory {_phase_words(phase, trainer.args)}{more}: {_room_words(room)}"]
        smaller = settings_that_take_less(phase, room, trainer)
    smaller = [setting for setting in smaller if setting.partition("=")[0] not in already]
    if smaller:
        parts.append(f"smaller: {', '.join(smaller)}")
    if trainer is not None:
        parts.append(_saved_words(Path(trainer.args.output_dir)))
    return OutOfRoom("; ".join(parts))


def _phase_words(phase: Phase, args: Any) -> str:
    size, length = args.per_device_train_batch_size, args.max_completion_length
    drawn = size * args.steps_per_generation
    words: dict[Phase, str] = {
        "loading": "while loading the model",
        "loading the reference": "while loading the reference model",
        "sampling": f"while sampling {counted(drawn, 'completion')} of up to {length:,} tokens at once",
        "evaluating": f"while sampling answers of up to {length:,} tokens to held-out problems",
        "scoring": f"while scoring {counted(size, 'completion')} of up to {length:,} tokens at once",
        "loss": f"in the forward pass of {counted(size, 'completion')} of up to {length:,} tokens",
        "backward": f"in the backward pass of {counted(size, 'completion')} of up to {length:,} tokens",
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
    checkpoint = newest_checkpoint(output_dir, hashed=False)
    if checkpoint is None:
        return "no checkpoint was saved yet"
    return (
        f"{checkpoint.name} is intact, the same command goes on from it (keys that change stand in allow_changes=[…])"
    )
