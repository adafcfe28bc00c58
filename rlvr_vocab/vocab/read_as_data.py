"""Model folders are read as data: safetensors alone, nothing unpickled, and no code of theirs unless asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlvr_vocab.errors import UserError

# Arguments of every `from_pretrained` here; `trust_remote_code` is the user's to change.
NO_CODE = {"trust_remote_code": False}
READ_AS_DATA = {"use_safetensors": True, **NO_CODE}
_TO_CONVERT = "convert them to safetensors where nothing can be lost, or take a revision that has them"
_SAFE, _PICKLED = "*.safetensors", ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
# Beginnings of what a trainer leaves beside the weights.
_NO_WEIGHTS = ("training_args", "optimizer", "scheduler", "scaler", "rng_state", "pending")


def refuse_pickled(folder: str | Path, given: str) -> None:
    """Raises UserError where the weights of a folder are pickled, so that reading them could run anything.

    Args:
        given: how the user named it.
    """
    pickled = None if any(Path(folder).glob(_SAFE)) else pickled_weights(Path(folder))
    if pickled is not None:
        raise UserError(f"{given}: holds only pickled weights ({pickled.name}), which are not read: {_TO_CONVERT}")


def pickled_weights(folder: Path) -> Path | None:
    """The first file of a folder that looks like pickled weights."""
    found = (path for pattern in _PICKLED for path in sorted(folder.glob(pattern)))
    return next((path for path in found if not path.name.startswith(_NO_WEIGHTS)), None)


def why_not_read(name: str, error: Exception) -> UserError | None:
    """One line for what Transformers says of a model that is not read as data; None for another error."""
    said = " ".join(str(error).split())
    if "custom code" in said:
        return UserError(f"{name} brings Python code of its own, which is not run", about="base with code")
    if "cannot be loaded with `safetensors`" in said:
        return UserError(f"{name}: holds only pickled weights, which are not read: {_TO_CONVERT}", about="base")
    return None


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Says in one line why a model is not read as data; other errors pass."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = why_not_read(name, error)
        if reason is None:
            raise
        raise reason from error
