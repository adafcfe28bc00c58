"""From settings to what the vocab and training rooms take."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.exp.typed_sections import ModelSettings
from rlvr_vocab.training.lora import Lora
from rlvr_vocab.vocab.expand import Expansion

# Arguments of `from_pretrained` that say where a base model comes from; the others are for loading it to train.
_SOURCE_ARGUMENTS = (
    "revision",
    "token",
    "trust_remote_code",
    "cache_dir",
    "local_files_only",
    "force_download",
    "proxies",
    "subfolder",
)


def expansion(model: ModelSettings, seed: int, open_thinking: str = "auto") -> Expansion:
    return Expansion(
        size=None if model.reasoning_vocab_size == "full" else model.reasoning_vocab_size,
        multiplicity=model.reasoning_multiplicity,
        source_ids=model.source_ids,
        mode=model.reasoning_mode,
        preserve_odds=model.preserve_odds,
        think_tags=model.think_tags,
        init_noise=model.init_noise,
        open_thinking=open_thinking,  # type: ignore[arg-type]  # checked when the settings were read
        chat_template=_template_text(model.chat_template),
        seed=seed,
    )


def source_kwargs(model: ModelSettings) -> dict[str, Any]:
    return {key: value for key, value in model.from_pretrained_kwargs.items() if key in _SOURCE_ARGUMENTS}


def loading_kwargs(model: ModelSettings) -> dict[str, Any]:
    """How the expanded checkpoint is loaded: weights that train are float32 unless `pure_bf16` says otherwise."""
    passed = {key: value for key, value in model.from_pretrained_kwargs.items() if key not in _SOURCE_ARGUMENTS}
    return {**passed, "dtype": model.dtype if model.pure_bf16 or model.trains_adapter else "float32"}


def lora(model: ModelSettings) -> Lora | None:
    """The adapter that a run trains; None where it trains the model itself."""
    if not model.trains_adapter:
        return None
    chosen = {key: value for key, value in asdict(model.lora).items() if key != "enabled"}
    return Lora(**chosen)


def cache_folder() -> Path:
    """Where models made on this machine are kept: `RLVR_VOCAB_CACHE`, else the user's cache folder."""
    given = os.environ.get("RLVR_VOCAB_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlvr-vocab"


def _template_text(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"model.chat_template={path} cannot be read: {error}") from error
