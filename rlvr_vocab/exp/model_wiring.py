"""From settings to what the vocab and training rooms take."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformers import BitsAndBytesConfig

from rlvr_vocab.errors import UserError
from rlvr_vocab.exp.model_folder import naming_model_keys
from rlvr_vocab.exp.typed_sections import ModelSettings
from rlvr_vocab.training.lora import Lora
from rlvr_vocab.training.quantization import quantization_config
from rlvr_vocab.training.unsloth_model import Unsloth
from rlvr_vocab.vocab.expand import Expansion, ExpansionPlan, plan_expansion

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


def planned(base: str, model: ModelSettings, seed: int, open_thinking: str = "auto") -> ExpansionPlan:
    """The expansion that is asked for; errors name the keys that asked for it."""
    with naming_model_keys():
        return plan_expansion(base, expansion(model, seed, open_thinking), source_kwargs(model))


def source_kwargs(model: ModelSettings) -> dict[str, Any]:
    return {key: value for key, value in model.from_pretrained_kwargs.items() if key in _SOURCE_ARGUMENTS}


def loading_kwargs(model: ModelSettings, *, use_cpu: bool = False) -> dict[str, Any]:
    """Arguments of `from_pretrained` for the expanded checkpoint."""
    passed = {key: value for key, value in model.from_pretrained_kwargs.items() if key not in _SOURCE_ARGUMENTS}
    if use_cpu and model.bits is not None:
        passed.setdefault("device_map", {"": "cpu"})  # quantized weights stay where they were read, by default on a GPU
    return {"use_safetensors": True, **passed, "dtype": model.loaded_dtype}


def lora(model: ModelSettings) -> Lora | None:
    """The adapter that a run trains; None where it trains the model itself."""
    if not model.trains_adapter:
        return None
    chosen = {key: value for key, value in asdict(model.lora).items() if key != "enabled"}
    return Lora(**chosen)


def quantization(model: ModelSettings, initial_model: Path) -> BitsAndBytesConfig | None:
    """How its linear layers are quantized as they are read; None where they are not, or Unsloth does it."""
    if model.bits is None or model.backend == "unsloth":
        return None
    return quantization_config(model.bits, initial_model, model.dtype)


def unsloth(model: ModelSettings) -> Unsloth | None:
    """How Unsloth loads the model; None under the other backend."""
    if model.backend != "unsloth":
        return None
    return Unsloth(**asdict(model.unsloth), load_in_4bit=model.bits == 4, dtype=model.dtype)


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
