"""Finds the model that an adapter was trained on, and tells whether it is the right one; needs no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.record.files import initial_models_of
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout
from rlvr_vocab.vocab.peft.weights_fingerprint import weights_fingerprint

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# In the names of rows, or of differences of rows, that train beside it: PEFT takes for its own what begins with lora_.
ROWS_KEY, DIFFERENCE_KEY = "lora_rows", "lora_difference"
BASE_RECORD = "base_weights.json"
_FINGERPRINT = "fingerprint"


def is_adapter(folder: str | Path) -> bool:
    return Path(folder, ADAPTER_CONFIG).is_file()


def record_base(folder: str | Path, base: Path) -> None:
    """Write beside an adapter, or a trained model, what tells the weights that it began with from others."""
    record = {_FINGERPRINT: weights_fingerprint(base)}
    Path(folder, BASE_RECORD).write_text(json.dumps(record) + "\n", encoding="utf-8")


def find_base(folder: str | Path, given: str | Path | None = None) -> Path:
    """The folder of the model under an adapter.

    It is the one that is given, else the one that the adapter was trained with, else `initial_model` of the run that
    the adapter lies in: the run may have been moved, and others may have been put where it was.

    Raises:
        UserError: there is no such folder, or it has another vocabulary, or other weights, than the adapter's.
    """
    folder = Path(folder)
    recorded = _recorded_base(folder)
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
    """Where to read a file that belongs to a checkpoint: its folder, or the base of an adapter that came without it.

    Raises:
        UserError: as `find_base` does.
    """
    if Path(folder, name).is_file() or not is_adapter(folder):
        return Path(folder)
    return find_base(folder, base)


def read_adapter_config(folder: Path) -> dict[str, Any]:
    """The configuration of an adapter, which names its kind.

    Raises:
        UserError: it is not readable, or names no kind.
    """
    config = _read_object(folder / ADAPTER_CONFIG, "the configuration of an adapter")
    if not isinstance(config.get("peft_type"), str):
        raise UserError(f"{folder / ADAPTER_CONFIG} is not readable as the configuration of an adapter: no peft_type")
    return config


def _read_object(path: Path, what: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is not readable as {what}: {error!r}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} is not readable as {what}: no JSON object")
    return content


def _recorded_base(folder: Path) -> str | None:
    recorded = read_adapter_config(folder).get("base_model_name_or_path")
    return recorded if isinstance(recorded, str) and recorded else None


def _other_vocabulary(folder: Path, base: Path) -> str | None:
    """Why a model is not the one under an adapter; None where it may be, for all that the adapter says."""
    if not (folder / LAYOUT_FILE).is_file():
        return None  # an adapter of another tool
    of_adapter, of_base = VocabLayout.load(folder), VocabLayout.load(base)
    if of_adapter == of_base:
        return None
    return (
        f"{folder} was trained on {of_adapter.standard_size} standard and {of_adapter.size} reasoning tokens, "
        f"{base} has {of_base.standard_size} and {of_base.size}, or others: it is not the base of this adapter"
    )


def other_weights(folder: Path, base: Path, as_key: str = "") -> str | None:
    """Why a model is not the one that was trained, by its weights; None where it may be."""
    record = folder / BASE_RECORD
    if not record.is_file():
        return None  # an adapter of another tool
    recorded = _read_object(record, "the record of an adapter's base").get(_FINGERPRINT)
    if recorded == weights_fingerprint(base):
        return None
    return f"{base} has other weights than the model that {folder} was trained on: give that one{as_key}"
