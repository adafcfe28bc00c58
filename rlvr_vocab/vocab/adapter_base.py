"""Finds the model that an adapter was trained on, and tells whether it is the right one; needs no torch."""

from __future__ import annotations

import json
from pathlib import Path

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
INITIAL_MODEL = "initial_model"


def is_adapter(folder: str | Path) -> bool:
    return Path(folder, ADAPTER_CONFIG).is_file()


def find_base(folder: str | Path, given: str | Path | None = None) -> Path:
    """The folder of the model under an adapter.

    It is the one that is given, else `initial_model` of the run that the adapter lies in (the run may have been
    moved), else the path that the adapter was trained with.

    Raises:
        UserError: there is no such folder, or it has another vocabulary than the adapter.
    """
    recorded = _recorded_base(Path(folder))
    in_run = [parent / INITIAL_MODEL for parent in Path(folder).resolve().parents]
    candidates = [Path(given)] if given is not None else [*in_run, *([Path(recorded)] if recorded else [])]
    base = next((path for path in candidates if (path / "config.json").is_file()), None)
    if base is None:
        where = f"base={given}" if given is not None else f"its base {recorded or '(none recorded)'}"
        raise UserError(f"{folder} is an adapter, and {where} is not there: give the model it was trained on as base=…")
    _require_same_vocabulary(Path(folder), base)
    return base


def _recorded_base(folder: Path) -> str | None:
    path = folder / ADAPTER_CONFIG
    try:
        recorded = json.loads(path.read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not readable as the configuration of an adapter: {error!r}") from error
    return recorded if isinstance(recorded, str) and recorded else None


def _require_same_vocabulary(folder: Path, base: Path) -> None:
    if not (folder / LAYOUT_FILE).is_file():
        return  # an adapter of another tool
    of_adapter, of_base = VocabLayout.load(folder), VocabLayout.load(base)
    if of_adapter != of_base:
        raise UserError(
            f"{folder} was trained on {of_adapter.standard_size} standard and {of_adapter.size} reasoning tokens, "
            f"{base} has {of_base.standard_size} and {of_base.size}, or others: it is not the base of this adapter"
        )
