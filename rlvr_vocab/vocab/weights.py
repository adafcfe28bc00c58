"""Reads folders of models and adapters as data: safetensors only, no code from the folder, the right base.

torch and Transformers are imported where they are used: commands check folders before anything heavy loads.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr_vocab.errors import UserError
from rlvr_vocab.files import json_text, read_json, read_json_if_there
from rlvr_vocab.record.files import initial_models_of
from rlvr_vocab.text import did_you_mean
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout

if TYPE_CHECKING:
    import torch

# Arguments of every `from_pretrained`; a user may set `trust_remote_code`.
NO_CODE = {"trust_remote_code": False}
READ_AS_DATA = {"use_safetensors": True, **NO_CODE}
_GENERATION = {
    "eos_token_id": int | list[int] | None,
    "suppress_tokens": list[int] | None,
    **dict.fromkeys(("bos_token_id", "pad_token_id", "max_new_tokens", "max_length"), int | None),
    **dict.fromkeys(("temperature", "top_p", "top_k", "repetition_penalty"), float | None),
}
# Bytes hashed at each end of a tensor. Training changes every number of a tensor, or whole rows at its end; hashing all
# bytes of 15 GB would take half a minute at every checkpoint.
_TENSOR_END = 4096

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# Names of trained rows, and of deltas of rows, in an adapter's file; PEFT saves names that begin with lora_.
ROWS_KEY, DIFFERENCE_KEY = "lora_rows", "lora_difference"
BASE_RECORD = "base_weights.json"
_FINGERPRINT = "fingerprint"


@contextmanager
def reading_model(name: str | Path) -> Iterator[None]:
    """Inside the block, an error of reading a model's files becomes a UserError of one line."""
    from safetensors import SafetensorError

    try:
        yield
    except (SafetensorError, OSError, ValueError) as error:
        if "custom code" in str(error):
            raise UserError(
                f"{name} needs its own Python code, which is not run; `train` runs it, if you trust it, with "
                "model.model_kwargs.trust_remote_code=true"
            ) from error
        reason, parent = str(error).strip().splitlines()[0], Path(name).parent
        if not Path(name).exists() and parent.is_dir():
            reason += did_you_mean(str(name), [str(each) for each in parent.iterdir() if each.is_dir()])
        raise UserError(f"{name} cannot be loaded as a language model: {reason}") from error


def stored_dtype(folder: Path) -> torch.dtype:
    """The dtype in a model folder's configuration; float32 where it names none."""
    import torch
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(str(folder), **NO_CODE)
    return config.get_text_config().dtype or config.dtype or torch.float32


def refuse_not_finite(model: torch.nn.Module, name: str | Path) -> None:
    """Raises UserError where a weight is NaN or infinite: nothing can be sampled from such a model."""
    import torch

    for tensor_name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and not tensor.is_meta and not tensor.sum(dtype=torch.float32).isfinite():
            raise UserError(f"{name} holds NaN or infinite weights, in {tensor_name}: take other weights")


def refuse_invalid_generation_config(folder: str | Path) -> None:
    """Raises UserError where Transformers could not use a folder's generation configuration."""
    from transformers import GenerationConfig

    path = Path(folder, "generation_config.json")
    content = read_json_if_there(path, _GENERATION) or {}
    try:
        GenerationConfig(**content)
    except (TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path} is not valid: {' '.join(str(error).split())}") from error


def weights_fingerprint(folder: Path) -> str | None:
    """SHA-256 of name, dtype, shape and both ends of every tensor in a folder; None where it holds no weights.

    The split of tensors over files makes no difference, nor does `config.json`, which tools rewrite.
    """
    tensors = dict(each for path in folder.glob("*.safetensors") for each in _hashed_tensors(path))
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(tensors[name])
    return digest.hexdigest() if tensors else None


def _hashed_tensors(path: Path) -> Iterator[tuple[str, bytes]]:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        try:
            header = dict(json.loads(file.read(min(length, size))))
            header.pop("__metadata__", None)
            for name, entry in header.items():
                start, end = (8 + length + offset for offset in entry["data_offsets"])
                if not 0 <= start <= end <= size:
                    raise ValueError(f"{name} lies outside of the file")
                digest = hashlib.sha256(f"{entry['dtype']} {entry['shape']}".encode())
                for place in (start, max(start, end - _TENSOR_END)):
                    file.seek(place)
                    digest.update(file.read(min(_TENSOR_END, end - start)))
                yield name, hashlib.sha256(name.encode()).digest() + digest.digest()
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(f"{path} cannot be read as weights: it is cut short, or no safetensors file") from error


def is_adapter(folder: str | Path) -> bool:
    return Path(folder, ADAPTER_CONFIG).is_file()


def record_base(folder: str | Path, base: Path) -> None:
    """Write, beside an adapter or a trained model, the fingerprint of the weights that it began with."""
    Path(folder, BASE_RECORD).write_text(json_text({_FINGERPRINT: weights_fingerprint(base)}), encoding="utf-8")


def find_base(folder: str | Path, given: str | Path | None = None) -> Path:
    """The folder of the model under an adapter; UserError where it is missing or another model than it was.

    It is the given one, else the recorded one, else `initial_model` of the run that contains the adapter, in case the
    run was moved.
    """
    folder = Path(folder)
    config = read_json(folder / ADAPTER_CONFIG, {"peft_type": str, "base_model_name_or_path": str | None})
    recorded = config.get("base_model_name_or_path")
    own = [Path(recorded)] if recorded else []
    candidates = [Path(given)] if given is not None else [*own, *initial_models_of(folder)]
    there = [path for path in candidates if (path / "config.json").is_file()]
    if not there:
        where = f"base={given}" if given is not None else f"its base {recorded or '(none recorded)'}"
        raise UserError(f"{folder} is an adapter, and {where} is not there: give the model it was trained on as base=…")
    reasons = [_other_vocabulary(folder, base) or other_weights(folder, base, " as base=…") for base in there]
    if None not in reasons:
        raise UserError(str(reasons[0]))
    return there[reasons.index(None)]


def folder_with(name: str, folder: str | Path, base: str | Path | None = None) -> Path:
    """The folder that has a file of a checkpoint: its own, or the base's (`find_base`) for an adapter without it."""
    return Path(folder) if Path(folder, name).is_file() or not is_adapter(folder) else find_base(folder, base)


def _other_vocabulary(folder: Path, base: Path) -> str | None:
    own, of_base = (VocabLayout.load(each) if (each / LAYOUT_FILE).is_file() else None for each in (folder, base))
    # Without a layout: an adapter of another tool, or a base that has no reasoning tokens.
    if own is None or own == of_base or (of_base is None and not own.size):
        return None
    return f"{base} has another vocabulary than {folder} was trained with: it is not the base of this adapter"


def other_weights(folder: Path, base: Path, as_key: str = "") -> str | None:
    """Why a model is not the one that a folder was trained on; None where it may be."""
    record = folder / BASE_RECORD
    if not record.is_file() or read_json(record).get(_FINGERPRINT) == weights_fingerprint(base):
        return None  # without a record, an adapter of another tool
    return f"{base} has other weights than the model that {folder} was trained on: give that one{as_key}"
