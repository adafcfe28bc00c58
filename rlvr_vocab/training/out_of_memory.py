"""A GPU without room, in one line: the phase of the training, the keys that take less, and what is saved."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from types import TracebackType
from typing import NamedTuple

from rlvr_vocab.errors import OutOfRoom, is_out_of_memory
from rlvr_vocab.training.checkpointing.find import newest_checkpoint

_REQUESTED = re.compile(r"Tried to allocate ([\d.]+ [KMGT]iB)")
LORA, FOUR_BITS = "model.lora.enabled=true", "model.model_kwargs.load_in_4bit=true"
NO_REFERENCE, CHECKPOINTING = "training.beta=0", "training.gradient_checkpointing=true"
_BATCH, _LENGTH = "training.per_device_train_batch_size", "training.max_completion_length"
_MODEL = (LORA, FOUR_BITS)


class Phase(NamedTuple):
    """Part of a training: the function that it is, what is going on then, and the keys that take less."""

    function: str
    words: str
    smaller: tuple[str, ...]


# The first one whose function is being called is the phase.
PHASES = (
    Phase("_load_reference", "loading the reference model", ("training.kl_log_steps=0", *_MODEL)),
    Phase("_generate_single_turn", "sampling completions", ("training.steps_per_generation", _LENGTH)),
    Phase("sample_completions", "sampling answers to held-out problems", (_BATCH, _LENGTH)),
    Phase("_compute_loss", "computing the loss", (CHECKPOINTING, _BATCH, _LENGTH, NO_REFERENCE)),
    Phase("_generate_and_score_completions", "scoring completions", (_BATCH, _LENGTH, NO_REFERENCE)),
    Phase("training_step", "computing gradients", (CHECKPOINTING, _BATCH, _LENGTH, *_MODEL)),
    Phase("AcceleratedOptimizer.step", "updating the weights", ("training.optim=adafactor", *_MODEL)),
    Phase("_save_checkpoint", "saving a checkpoint", _MODEL),
    Phase("save_final_model", "saving the final model", _MODEL),
)
LOADING = Phase("", "loading the model", _MODEL)


@contextmanager
def naming_out_of_memory(run_folder: Path, already: Collection[str] = ()) -> Iterator[None]:
    """Turn a GPU's lack of memory into one line.

    Args:
        run_folder: where checkpoints of the run are looked for.
        already: what of the keys with a value the run has set.

    Raises:
        OutOfRoom: in place of torch's error, which is its cause.
    """
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        phase = phase_of(error.__traceback__)
        requested = _REQUESTED.search(str(error))
        smaller = [key for key in phase.smaller if key not in already]
        parts = [
            f"CUDA out of memory while {phase.words}{f', {requested[1]} more were asked for' if requested else ''}",
            *([f"smaller: {', '.join(smaller)}"] if smaller else []),
            _saved(run_folder),
        ]
        raise OutOfRoom("; ".join(parts)) from error


def phase_of(traceback: TracebackType | None) -> Phase:
    """The phase in which an error came: that of the functions on its way."""
    codes = [frame.f_code for frame, _ in walk_tb(traceback)]
    called = {name for code in codes for name in (code.co_name, code.co_qualname)}
    return next((phase for phase in PHASES if phase.function in called), LOADING)


def _saved(run_folder: Path) -> str:
    for folder in (run_folder, *sorted(run_folder.glob("stages/*"), reverse=True)):
        checkpoint = newest_checkpoint(folder, hashed=False)
        if checkpoint is not None:
            words = "is intact, the same command goes on from it (keys that change stand in allow_changes=[…])"
            return f"{checkpoint.name} {words}"
    return "no checkpoint was saved yet"
