"""Tells the weights of one model folder from those of another of the same shape, without reading them whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from rlvr_vocab.errors import UserError

# Training moves every number of a tensor, or whole rows of it at its end: both ends of each tell, and at 15 GB of
# weights they are read in a fraction of a second where a hash of all bytes takes half a minute at every checkpoint.
_TENSOR_END = 4096


def weights_fingerprint(folder: Path) -> str | None:
    """SHA-256 of name, type, shape and both ends of every tensor in a model folder; None where it holds no weights.

    How the tensors are spread over files makes no difference, nor does `config.json`, which tools write anew.

    Raises:
        UserError: a file of weights is cut short, or is none.
    """
    tensors = dict(each for path in folder.glob("*.safetensors") for each in _tensor_ends(path))
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(hashlib.sha256(name.encode()).digest() + tensors[name])
    return digest.hexdigest() if tensors else None


def _tensor_ends(path: Path) -> Iterator[tuple[str, bytes]]:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        entries = _header(file.read(min(length, size)), path)
        for name, entry in entries.items():
            start, end = (8 + length + offset for offset in entry["data_offsets"])
            if end > size:
                raise UserError(f"{path} cannot be read as weights: it is cut short")
            about = f"{entry['dtype']} {entry['shape']}".encode()
            yield name, hashlib.sha256(about + _ends(file, start, end)).digest()


def _header(content: bytes, path: Path) -> dict[str, Any]:
    """The entries of a safetensors file, by the names of their tensors."""
    try:
        header = dict(json.loads(content))
    except (ValueError, TypeError) as error:
        raise UserError(f"{path} cannot be read as weights: it is cut short, or no safetensors file") from error
    return {name: entry for name, entry in header.items() if name != "__metadata__"}


def _ends(file: BinaryIO, start: int, end: int) -> bytes:
    """The first and the last bytes between two places of a file, which may overlap."""
    length = min(_TENSOR_END, end - start)
    file.seek(start)
    first = file.read(length)
    file.seek(end - length)
    return first + file.read(length)
