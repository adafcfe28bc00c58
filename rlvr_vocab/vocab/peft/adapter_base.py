"""Finds the model that an adapter was trained on, and checks that it is the right one; needs no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.files import json_text, read_json
from rlvr_vocab.record.files import initial_models_of
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout
from rlvr_vocab.vocab.weights import weights_fingerprint

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# Names of trained rows, and of deltas of rows, in an adapter's file; PEFT saves names that begin with lora_.
ROWS_KEY, DIFFERENCE_KEY = "lora_rows", "lora_difference"
BASE_RECORD = "base_weights.json"
_FINGERPRINT = "fingerprint"


def is_adapter(folder: str | Path) -> bool:
    return Path(folder, ADAPTER_CONFIG).is_file()


def record_base(folder: str | Path, base: Path) -> None:
    """Write, beside an adapter or a trained model, the fingerprint of the weights that it began with."""
    Path(folder, BASE_RECORD).write_text(json_text({_FINGERPRINT: weights_fingerprint(base)}), encoding="utf-8")


def find_base(folder: str | Path, given: str | Path | None = None) -> Path:
    """The folder of the model under an adapter.

    It is the given one, else the recorded one, else `initial_model` of the run that the adapter lies in, which may
    have been moved.

    Raises:
        UserError: there is no such folder, or it has another vocabulary, or other weights, than the adapter's.
    """
    folder = Path(folder)
    recorded = read_adapter_config(folder).get("base_model_name_or_path")
    own = [Path(recorded)] if isinstance(recorded, str) and recorded else []
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
    """The folder with a file of a checkpoint: its own, or the base of an adapter that came without it.

    Raises:
        UserError: as `find_base` does.
    """
    if Path(folder, name).is_file() or not is_adapter(folder):
        return Path(folder)
    return find_base(folder, base)


def read_adapter_config(folder: Path) -> dict[str, Any]:
    """The configuration of an adapter; UserError where it cannot be read, or names no `peft_type`."""
    return read_json(folder / ADAPTER_CONFIG, {"peft_type": str})


def _other_vocabulary(folder: Path, base: Path) -> str | None:
    """Why a model is not the one under an adapter, by its layout; None where it may be."""
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
    """Why a model is not the one under an adapter, by its weights; None where it may be."""
    record = folder / BASE_RECORD
    if not record.is_file() or read_json(record).get(_FINGERPRINT) == weights_fingerprint(base):
        return None  # without a record, an adapter of another tool
    return f"{base} has other weights than the model that {folder} was trained on: give that one{as_key}"
