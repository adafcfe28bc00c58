"""Model folders read as data: safetensors alone, no code of theirs, finite weights, usable generation settings.

Nothing here imports torch or Transformers before it needs them: commands check folders before anything heavy loads.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from rlvr_vocab.errors import UserError
from rlvr_vocab.files import read_json_if_there

if TYPE_CHECKING:
    import torch

# Arguments of every `from_pretrained`; a user may set `trust_remote_code`.
NO_CODE = {"trust_remote_code": False}
READ_AS_DATA = {"use_safetensors": True, **NO_CODE}
_TO_CONVERT = "convert them to safetensors where nothing can be lost, or take a revision that has them"
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
# Prefixes of the pickles that a trainer leaves beside the weights.
_NO_WEIGHTS = ("training_args", "optimizer", "scheduler", "scaler", "rng_state", "pending")
# Bytes hashed at each end of a tensor. Training moves every number of a tensor, or whole rows at its end; hashing all
# bytes of 15 GB takes half a minute at every checkpoint.
_TENSOR_END = 4096


def refuse_pickled(folder: str | Path, given: str) -> None:
    """Raises UserError where a folder holds only pickled weights, which can run code when read.

    Args:
        given: the folder as the user named it.
    """
    pickled = None if any(Path(folder).glob("*.safetensors")) else pickled_weights(Path(folder))
    if pickled is not None:
        raise UserError(f"{given}: holds only pickled weights ({pickled.name}), which are not read: {_TO_CONVERT}")


def pickled_weights(folder: Path) -> Path | None:
    """The first file of a folder that looks like pickled weights."""
    found = (path for pattern in _PICKLED for path in sorted(folder.glob(pattern)))
    return next((path for path in found if not path.name.startswith(_NO_WEIGHTS)), None)


def why_not_read(name: str, error: Exception) -> UserError | None:
    """One line for Transformers' refusal of pickles or remote code; None for another error."""
    message = " ".join(str(error).split())
    if "custom code" in message:
        return UserError(f"{name} brings Python code of its own, which is not run", about="base with code")
    if "cannot be loaded with `safetensors`" in message:
        return UserError(f"{name}: holds only pickled weights, which are not read: {_TO_CONVERT}", about="base")
    return None


@contextmanager
def reading_weights(name: str | Path) -> Iterator[None]:
    """Inside the block, errors of reading a model's weights are one line."""
    from safetensors import SafetensorError

    try:
        yield
    except (SafetensorError, OSError, ValueError) as error:
        reason = why_not_read(str(name), error)
        if reason is None and isinstance(error, ValueError):
            raise
        other = UserError(f"the weights of {name} cannot be read: {' '.join(str(error).split())}")
        raise reason or other from error


def stored_dtype(folder: Path) -> torch.dtype:
    """The dtype in a model folder's configuration; float32 where it names none."""
    import torch
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(str(folder), **NO_CODE)
    named = getattr(config.get_text_config(), "dtype", None) or getattr(config, "dtype", None) or torch.float32
    return named if isinstance(named, torch.dtype) else getattr(torch, named)


def refuse_not_finite(model: torch.nn.Module, name: str | Path) -> None:
    """Raises UserError where a weight is NaN or infinite: nothing can be sampled from such a model."""
    import torch

    for tensor_name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and not tensor.is_meta and not tensor.sum(dtype=torch.float32).isfinite():
            raise UserError(f"{name} holds NaN or infinite weights, in {tensor_name}: take other weights")


_GENERATION = {
    "eos_token_id": (int, [int], None),
    "suppress_tokens": ([int], None),
    **dict.fromkeys(("bos_token_id", "pad_token_id", "max_new_tokens", "max_length"), (int, None)),
    **dict.fromkeys(("temperature", "top_p", "top_k", "repetition_penalty"), (int, float, None)),
}


def refuse_invalid_generation_config(folder: str | Path) -> None:
    """Raises UserError where Transformers could not use a folder's generation configuration."""
    from transformers import GenerationConfig

    path = Path(folder, "generation_config.json")
    content = read_json_if_there(path, _GENERATION) or {}
    try:
        GenerationConfig(**content)
        if (content.get("temperature") or 0) < 0:
            raise ValueError("temperature is below 0")
    except (TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path} is not valid: {' '.join(str(error).split())}") from error


def weights_fingerprint(folder: Path) -> str | None:
    """SHA-256 of name, dtype, shape and both ends of every tensor in a folder; None where it holds no weights.

    The split of tensors over files makes no difference, nor does `config.json`, which tools rewrite.

    Raises:
        UserError: a file of weights is truncated, or is no safetensors file.
    """
    tensors = dict(each for path in folder.glob("*.safetensors") for each in _hashed_tensors(path))
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(hashlib.sha256(name.encode()).digest() + tensors[name])
    return digest.hexdigest() if tensors else None


def _hashed_tensors(path: Path) -> Iterator[tuple[str, bytes]]:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        try:
            header = dict(json.loads(file.read(min(length, size))))
        except (ValueError, TypeError) as error:
            raise UserError(f"{path} cannot be read as weights: it is cut short, or no safetensors file") from error
        header.pop("__metadata__", None)
        for name, entry in header.items():
            start, end = (8 + length + offset for offset in entry["data_offsets"])
            if end > size:
                raise UserError(f"{path} cannot be read as weights: it is cut short")
            about = f"{entry['dtype']} {entry['shape']}".encode()
            yield name, hashlib.sha256(about + _both_ends(file, start, end)).digest()


def _both_ends(file: BinaryIO, start: int, end: int) -> bytes:
    length = min(_TENSOR_END, end - start)
    file.seek(start)
    first = file.read(length)
    file.seek(end - length)
    return first + file.read(length)
